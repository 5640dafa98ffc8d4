// SPDX-License-Identifier: Apache-2.0

// Package diagnosis turns what was measured on a node into a report: where the
// time of TTFT and of the gaps went, stage by stage, what is wrong, and what to
// do about it. It owns the report (its schema, its text, JSON and Markdown) and
// the findings, one file per mechanism.
//
// It gets plain facts (Measured) and knows no kernel and no BPF, so that the same
// facts give the same report on every machine.
//
// A fact that was not measured is nil in Measured and left out of the report.
// It is never 0, and no finding is raised on it.
package diagnosis

// SPDX-License-Identifier: Apache-2.0

// Package collectors turns what was measured into Prometheus metrics. Every family is
// declared once, in Table.
package collectors

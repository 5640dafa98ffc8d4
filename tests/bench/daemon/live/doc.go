// SPDX-License-Identifier: Apache-2.0

// Package live runs the real daemon for tests and measuring targets: the binary as it is
// released, started as an operator starts it, with a configuration and folders of its
// own. What it takes is read from the kernel, what it says from its metrics.
package live

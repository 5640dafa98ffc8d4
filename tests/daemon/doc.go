// SPDX-License-Identifier: Apache-2.0

// Package daemon tests `velo-agent run` from outside: the real program is built once,
// started with a configuration of its own, and looked at through what it serves, what
// /proc says of its two processes, and what it leaves behind. It owns nothing that the
// product needs.
package daemon

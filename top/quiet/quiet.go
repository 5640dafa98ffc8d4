// SPDX-License-Identifier: Apache-2.0

// Package quiet keeps Bubble Tea from asking the terminal for its colours while the
// program is initialised. It would do so for every verb, write escape sequences
// where a page was asked for, and wait up to 5 s for a terminal that does not
// answer; top uses no colour that depends on the answer.
//
// It works by the order in which Go initialises packages: by import path, each
// after what it imports. This package imports syscall alone, so it comes before os
// and all that writes; whoever imports Bubble Tea calls Restore from an init.
package quiet

import "syscall"

var term, hadTerm = syscall.Getenv("TERM")

func init() {
	_ = syscall.Setenv("TERM", "dumb") // nothing is asked of a dumb terminal
}

// Restore gives TERM its value back. It may be called twice.
func Restore() {
	if hadTerm {
		_ = syscall.Setenv("TERM", term)
		return
	}
	_ = syscall.Unsetenv("TERM")
}

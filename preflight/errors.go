// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// ErrMalformed marks a file that does not hold what Linux writes there.
var ErrMalformed = errors.New("this is not what Linux writes there: " +
	"check that the root given is a mounted procfs of the running kernel")

// malformed returns an error that names file, line and remedy; got is clipped
// and quoted. Lines count from 1.
func malformed(file string, line int, want, got string) error {
	if len(got) > 64 {
		got = got[:64] + "..."
	}
	return fmt.Errorf("%s line %d: want %s, got %q: %w", file, line, want, got, ErrMalformed)
}

// maxErrs is how many errors an Incomplete keeps; the others are only counted.
const maxErrs = 8

// Incomplete says that the values returned beside it are valid, but that some
// could not be read, mostly for want of a right (errors.Is with
// [fs.ErrPermission]). Other errors mean that there is no result.
type Incomplete struct {
	Doing   string  // a gerund phrase: what was being done
	Skipped int     // how many facts are missing
	Errs    []error // the first few reasons
}

// Error names the first reason, and the remedy where a right is missing.
func (e *Incomplete) Error() string {
	s := fmt.Sprintf("%s: %d facts left out, first: %v", e.Doing, e.Skipped, e.Errs[0])
	if errors.Is(e, fs.ErrPermission) {
		s += " (run as root, or with CAP_SYS_PTRACE and CAP_SYS_ADMIN)"
	}
	return s
}

// Unwrap returns the reasons that were kept.
func (e *Incomplete) Unwrap() []error { return e.Errs }

// skips collects what an [Incomplete] reports.
type skips struct {
	n    int
	errs []error
}

// add counts err unless it is nil or says that the process has gone. A missing
// right is always among the errors kept.
func (s *skips) add(err error) {
	if err == nil || gone(err) {
		return
	}
	s.n++
	if len(s.errs) < maxErrs {
		s.errs = append(s.errs, err)
		return
	}
	if errors.Is(err, fs.ErrPermission) && !errors.Is(errors.Join(s.errs...), fs.ErrPermission) {
		s.errs[maxErrs-1] = err
	}
}

// err returns an *Incomplete, or nil where nothing was skipped.
func (s *skips) err(doing string) error {
	if s.n == 0 {
		return nil
	}
	return &Incomplete{Doing: doing, Skipped: s.n, Errs: s.errs}
}

// gone reports whether err says that a process or thread ended meanwhile.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH)
}

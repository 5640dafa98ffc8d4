// SPDX-License-Identifier: Apache-2.0

package record

import (
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// Read says what reading came upon.
type Read struct {
	Snapshots int    // that were handed out
	Damaged   uint64 // places in the segments read that hold no intact snapshot
}

// Range hands each snapshot of the store in dir whose wall time lies within
// [from, to) to f, in order of sequence, and stops at f's error, which it returns
// as it is. It needs the right to read alone, works with or without a writer, and
// holds one snapshot in memory at a time. What is appended meanwhile is not read.
//
// A damaged place is skipped and counted; a frame that is cut off at the very end is
// being written, or was never acknowledged, and is not. Where a segment cannot be
// read the others are, and the error names it. No such folder is [fs.ErrNotExist].
func Range(dir string, from, to time.Time, f func(Snapshot) error) (Read, error) {
	segments, err := list(dir)
	if err != nil {
		return Read{}, fmt.Errorf("listing the record in %s (is it switched on, and is this its folder?): %w", dir, err)
	}
	return read(dir, segments, from, to, f)
}

// read is Range over the segments that may have something to say.
func read(dir string, segments []segment, from, to time.Time, f func(Snapshot) error) (Read, error) {
	var r Read
	var errs []error
	var stop error
	sc := newScanner()
	for i, g := range segments {
		if g.outside(from, to) {
			continue
		}
		found, err := sc.file(g.path(dir), g.size, func(s Snapshot) error {
			if s.Time.Before(from) || !s.Time.Before(to) {
				return nil
			}
			r.Snapshots++
			stop = f(s)
			return stop
		})
		r.Damaged += found.damaged
		if stop != nil {
			return r, stop
		}
		if found.torn && i < len(segments)-1 {
			r.Damaged++
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // none: a writer just dropped it
			r.Damaged++
			errs = append(errs, fmt.Errorf("reading a segment of the record: %w", err))
		}
	}
	return r, errors.Join(errs...)
}

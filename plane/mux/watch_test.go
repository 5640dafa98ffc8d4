// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// TestWatch: contexts are watched for all who wait with them again and again, and no longer
// than they do.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, stop := context.WithCancel(t.Context())
		other, stopOther := context.WithCancel(t.Context())
		boxes, ended := make([]Inbox, 5), make([]error, 5)
		for i, ctx := range []context.Context{shared, shared, shared, shared, other} {
			go func() {
				var f Frames
				for ended[i] == nil {
					for f.N > 0 {
						f.Next()
					}
					ended[i] = boxes[i].Await(ctx, &f)
				}
			}()
		}
		wants := func(when string, watched int, want ...error) {
			t.Helper()
			synctest.Wait()
			if n := len(watches.of); n != watched {
				t.Errorf("%s: %d contexts are watched, want %d", when, n, watched)
			}
			if !slices.EqualFunc(ended, want, errors.Is) {
				t.Errorf("%s: they end with %v, want %v", when, ended, want)
			}
		}
		for range fewWaits + 3 {
			for i := range boxes {
				put(&boxes[i], 0, number(1))
			}
			synctest.Wait()
		}
		wants("waiting", 2, nil, nil, nil, nil, nil)
		boxes[1].Close()
		wants("one in the midst has left", 2, nil, ErrClosed, nil, nil, nil)
		boxes[3].Close()
		boxes[0].Close()
		wants("the first and the last have", 2, ErrClosed, ErrClosed, nil, ErrClosed, nil)
		stop()
		wants("the context has ended", 1, ErrClosed, ErrClosed, context.Canceled, ErrClosed, nil)
		boxes[4].Close()
		wants("all have left the other", 0, ErrClosed, ErrClosed, context.Canceled, ErrClosed, ErrClosed)
		stopOther()
		boxes[2].Close() // after the end of what watched it
	})
}

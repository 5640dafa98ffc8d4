// SPDX-License-Identifier: Apache-2.0

package record

import (
	"testing"
	"time"
)

// fakeClock is a host's clock since boot, and its reboots.
type fakeClock struct{ moment }

func (c *fakeClock) now() (moment, error) { return c.moment, nil }

// run appends n snapshots of 100 bytes, one every 10 s by the clock since boot
// and by the wall clock from wall on.
func (c *fakeClock) run(t *testing.T, s *Store, wall time.Time, n int) {
	t.Helper()
	for range n {
		c.since += 10 * time.Second
		wall = wall.Add(10 * time.Second)
		s.add(t, wall, payload(s.next, 100))
	}
}

// open opens a store on the clock whose syncs cost nothing.
func (c *fakeClock) open(t *testing.T, o Options) *Store {
	t.Helper()
	s := open(t, o)
	s.now = c.now
	s.sync = noSync
	return s
}

func TestRetentionByBytes(t *testing.T) {
	const frame = headerLen + 100
	c := &fakeClock{moment{1, time.Hour}}
	s := c.open(t, Options{MaxBytes: 40 * frame, SegmentBytes: 4 * frame})
	for range 100 {
		c.run(t, s, noon, 1)
		if b := s.Stats().Bytes; b > s.o.MaxBytes {
			t.Fatalf("holds %d bytes, at most %d are allowed", b, s.o.MaxBytes)
		}
	}
	wantSequences(t, s.o.Dir, 0, upTo(61, 100)...)
	st := s.Stats()
	if st.Snapshots != 40 || st.Bytes != 40*frame || st.Segments != 10 {
		t.Errorf("stats are %+v", st)
	}

	t.Run("one large", func(t *testing.T) {
		s.add(t, noon, payload(101, 20*frame))
		if b := s.Stats().Bytes; b > s.o.MaxBytes {
			t.Errorf("holds %d bytes, at most %d are allowed", b, s.o.MaxBytes)
		}
		wantSequences(t, s.o.Dir, 0, upTo(85, 101)...)
	})
	t.Run("smaller limit", func(t *testing.T) {
		s.Close()
		s := c.open(t, Options{Dir: s.o.Dir, MaxBytes: 8 * frame, SegmentBytes: 4 * frame})
		c.run(t, s, noon, 1)
		wantSequences(t, s.o.Dir, 0, 102)
	})
}

func TestRetentionByAge(t *testing.T) {
	c := &fakeClock{moment{1, time.Hour}}
	s := c.open(t, Options{Keep: time.Hour})
	c.run(t, s, noon, 1000)
	all, _ := readDir(t, s.o.Dir, always, forever)
	first, last := all[0], all[len(all)-1]
	// A segment goes when its newest snapshot is too old.
	if kept := last.SinceBoot - first.SinceBoot; kept < time.Hour || kept > time.Hour+time.Hour/partsByAge+20*time.Second {
		t.Errorf("reaches back %v, want an hour and at most one segment", kept)
	}
	if last.Sequence != 1000 {
		t.Errorf("the last is %d, want 1000", last.Sequence)
	}
}

// Age is the same after a restart of the agent, which took some time.
func TestAgeOverRestart(t *testing.T) {
	for _, tc := range []struct {
		name  string
		pause time.Duration
		want  uint64
	}{
		{"short", 50 * time.Minute, 1},
		{"long", 61 * time.Minute, 11},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &fakeClock{moment{1, time.Hour}}
			s := c.open(t, Options{Keep: time.Hour})
			c.run(t, s, noon, 10)
			s.Close()
			c.since += tc.pause
			s = c.open(t, Options{Dir: s.o.Dir, Keep: time.Hour})
			c.run(t, s, noon, 1)
			wantSequences(t, s.o.Dir, 0, upTo(tc.want, 11)...)
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"testing"
	"time"
)

func TestUntil(t *testing.T) {
	for _, tc := range []struct {
		name string
		m, n moment
		want time.Duration
	}{
		{"same boot", moment{1, time.Hour}, moment{1, 3 * time.Hour}, 2 * time.Hour},
		{"same boot, back", moment{1, time.Hour}, moment{1, time.Minute}, 0},
		{"next boot", moment{1, 90 * time.Hour}, moment{2, time.Minute}, time.Minute},
		{"unknown boots", moment{0, 90 * time.Hour}, moment{0, time.Minute}, 0},
	} {
		if got := tc.m.until(tc.n); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestClock(t *testing.T) {
	now := clock()
	a, err := now()
	if err != nil {
		t.Fatal(err)
	}
	b, err := clock()()
	if err != nil {
		t.Fatal(err)
	}
	if a.boot == 0 || a.boot != b.boot || b.since < a.since {
		t.Errorf("two readings of one boot are %+v and %+v", a, b)
	}
}

// The wall clock jumps between two runs of 100 snapshots. Nothing is dropped for it,
// order is that of appending, and each run is found by the times it had.
func TestWallClockJumps(t *testing.T) {
	for name, jump := range map[string]time.Duration{
		"back 5 h":       -5 * time.Hour,
		"back over it":   -1000 * time.Second,
		"forward 5 h":    5 * time.Hour,
		"forward a day":  25 * time.Hour,
		"forward a year": 365 * 24 * time.Hour,
		"to 1970":        time.Unix(0, 0).Sub(noon),
	} {
		t.Run(name, func(t *testing.T) {
			c := &fakeClock{moment{1, time.Hour}}
			s := c.open(t, Options{SegmentBytes: 2000})
			c.run(t, s, noon, 100)
			end := noon.Add(1000 * time.Second)
			c.run(t, s, end.Add(jump), 100)
			c.run(t, s, end.Add(1000*time.Second), 10) // and is set right again
			wantSequences(t, s.o.Dir, 0, upTo(1, 210)...)

			reopened := func() *Store {
				s.Close()
				return c.open(t, Options{Dir: s.o.Dir, SegmentBytes: 2000})
			}
			for _, s := range []*Store{s, reopened()} {
				wantRange(t, s, end.Add(jump+10*time.Second), end.Add(jump+1001*time.Second), 101, 200)
				wantRange(t, s, noon, end.Add(time.Second), 1, 100)
			}
		})
	}
}

// wantRange checks that the snapshots first to last are among those of a time, in
// order, that all are of that time, and that store and folder say the same.
func wantRange(t *testing.T, s *Store, from, to time.Time, first, last uint64) {
	t.Helper()
	var got []uint64
	if _, err := s.Range(from, to, func(n Snapshot) error {
		if n.Time.Before(from) || !n.Time.Before(to) {
			t.Errorf("%v is outside of %v to %v", n.Time, from, to)
		}
		if len(got) > 0 && n.Sequence <= got[len(got)-1] {
			t.Errorf("%d comes after %d", n.Sequence, got[len(got)-1])
		}
		got = append(got, n.Sequence)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	of := map[uint64]bool{}
	for _, n := range got {
		of[n] = true
	}
	for n := first; n <= last; n++ {
		if !of[n] {
			t.Errorf("%d is not among what was found between %v and %v", n, from, to)
		}
	}
	if all, _ := readDir(t, s.o.Dir, from, to); fmt.Sprint(sequences(all)) != fmt.Sprint(got) {
		t.Errorf("the folder gives %v, the store %v", sequences(all), got)
	}
}

// A reboot after an outage, with a wall clock that is years off at first: the hours
// before it stay until the host was up for Keep again.
func TestReboot(t *testing.T) {
	c := &fakeClock{moment{1, 100 * time.Hour}}
	s := c.open(t, Options{Keep: time.Hour})
	c.run(t, s, noon, 100)
	s.Close()
	c.moment = moment{2, 10 * time.Minute}
	s = c.open(t, Options{Dir: s.o.Dir, Keep: time.Hour})
	c.run(t, s, noon.Add(20*365*24*time.Hour), 10)
	wantSequences(t, s.o.Dir, 0, upTo(1, 110)...)
	c.since += 49 * time.Minute // with what the boot has lasted, more than an hour
	c.run(t, s, noon.Add(7*24*time.Hour), 1)
	wantSequences(t, s.o.Dir, 0, upTo(101, 111)...)
}

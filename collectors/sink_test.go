// SPDX-License-Identifier: Apache-2.0

package collectors

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

func TestBudget(t *testing.T) {
	f := &Family{Name: "f", Type: Gauge, Labels: []string{"a", "b"}, Budget: 4}
	for _, c := range []struct {
		name         string
		sets         int
		rows, folded int
	}{
		{"none", 0, 0, 0},
		{"below", 3, 3, 0},
		{"exactly", 4, 4, 0},
		{"one beyond", 5, 4, 2},
		{"far beyond", 100, 4, 97},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSink()
			for range 2 { // the second time each finds its row again
				for i := range c.sets {
					s.add(f, 1, strconv.Itoa(i), "x")
				}
			}
			rows := s.families[f]
			if len(rows) != c.rows || s.folded[f] != c.folded {
				t.Fatalf("%d rows and %d folded, want %d and %d", len(rows), s.folded[f], c.rows, c.folded)
			}
			var sum float64
			for i, r := range rows {
				sum += r.value
				want := []string{strconv.Itoa(i), "x"}
				if c.folded > 0 && i == f.Budget-1 {
					want = []string{overflow, overflow}
				}
				if !slices.Equal(r.labels, want) {
					t.Errorf("row %d is of %v, want %v", i, r.labels, want)
				}
			}
			if sum != 2*float64(c.sets) {
				t.Errorf("the rows add up to %v, want %v", sum, 2*c.sets)
			}
		})
	}
}

func TestBudgetOfHistograms(t *testing.T) {
	f := &Family{Name: "f", Type: Histogram, Labels: []string{"a"}, Budget: 2}
	s := newSink()
	all := make([]attribution.Histogram, 5)
	for i := range all {
		all[i].Add(time.Duration(i+1) * time.Millisecond)
		s.observe(f, &all[i], nil, strconv.Itoa(i))
	}
	rows := s.families[f]
	if len(rows) != 2 || rows[1].histogram.Count() != 4 || rows[1].histogram.Sum() != 14*time.Millisecond {
		t.Errorf("%d rows, the last of %d samples", len(rows), rows[len(rows)-1].histogram.Count())
	}
	for i := range all {
		if all[i].Count() != 1 {
			t.Errorf("the histogram of %d was changed by folding", i)
		}
	}
}

func TestAbsentRowsArePlacedNowhere(t *testing.T) {
	s := newSink()
	s.count(&Exchanges, nil, "1", "", "", "", "", "")
	s.observe(&TTFT, nil, nil, "1", "", "", "", "", "")
	s.duration(&SendLimited, nil, "1", "", "", "", "", "", "send_buffer")
	if len(s.families) != 0 {
		t.Errorf("there are rows of %d families", len(s.families))
	}
}

// SPDX-License-Identifier: Apache-2.0

package mux

import "time"

// gather holds records back for a moment where many producers send one each at times of
// their own: they would leave in a write for every few. It holds none where that gathers
// little, nor where records come many at a time by themselves.
type gather struct {
	last    time.Duration // when a batch left, since the mux began; likewise
	began   time.Duration // when the first record came that is held
	since   time.Duration // the present look at the rate
	records int           // that left in it
	dense   bool          // a batch that is held gathers enough
	holds   int           // batches that may be held before one is let go, to see what it has
}

const (
	fewRecords = 16 // of a batch: a write costs as much as those
	mostHeld   = 64 // one in so many leaves at once
)

// wait is how long what was staged just now waits for company.
func (g *gather) wait(now, most time.Duration) time.Duration {
	if !g.dense || g.holds == 0 {
		return 0
	}
	g.began = now
	return max(0, g.last+most-now)
}

// burst reports whether fewRecords that are held came at once, the last of them now.
func (g *gather) burst(now, most time.Duration) bool {
	if now-g.began > most/100 {
		return false
	}
	g.holds = 0
	return true
}

// left notes a batch of n records that leaves.
func (g *gather) left(now, most time.Duration, n int, held bool) {
	g.last = now
	g.records += n
	if d := now - g.since; d >= 2*most {
		g.dense = time.Duration(g.records)*most >= fewRecords*d
		g.since, g.records = now, 0
	}
	switch {
	case held:
		g.holds--
	case n < fewRecords:
		g.holds = mostHeld
	default:
		g.holds = 0
	}
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

// TestMiddle judges 40 pairs of 5 ms: stalls of the machine in fewer than a quarter
// of them do not sway the short form, and what is booked wrongly in half of them does.
func TestMiddle(t *testing.T) {
	stages := []attribution.Stage{attribution.AcceptWait}
	for _, c := range []struct {
		name             string
		change           func(i int, p *pair)
		lowestOf, mostOf float64
	}{
		{"as injected", func(int, *pair) {}, 1, 1},
		{"undisturbed exchanges stalled", func(i int, p *pair) {
			if i < 9 {
				p.off.stages.Stages[attribution.AcceptWait] += 17 * time.Millisecond
			}
		}, 1, 1},
		{"disturbed exchanges stalled", func(i int, p *pair) {
			if i%5 == 0 {
				p.on.stages.Stages[attribution.AcceptWait] += 17 * time.Millisecond
			}
		}, 1, 1},
		{"a tenth too little in each", func(_ int, p *pair) {
			p.on.stages.Stages[attribution.AcceptWait] -= 500 * time.Microsecond
		}, 0.9, 0.9},
		{"nothing in half of them", func(i int, p *pair) {
			if i%2 == 0 {
				p.on.stages.Stages[attribution.AcceptWait] = 0
			}
		}, 0.4, 0.6},
	} {
		pairs := make([]pair, 40)
		for i := range pairs {
			pairs[i].on.injected = 5 * time.Millisecond
			pairs[i].on.stages.Stages[attribution.AcceptWait] = 5 * time.Millisecond
			pairs[i].on.stages.Total = 5 * time.Millisecond
			c.change(i, &pairs[i])
		}
		s := judge(stages, middle(stages, pairs))
		if s.samples != 20 || s.ratio < c.lowestOf-1e-9 || s.ratio > c.mostOf+1e-9 || math.IsNaN(s.ratio) {
			t.Errorf("%s: %d samples, ratio %.3f, want 20 and %.1f to %.1f", c.name, s.samples, s.ratio, c.lowestOf, c.mostOf)
		}
	}
}

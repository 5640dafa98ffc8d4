// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/tests/results"
)

// The limits (docs/testing.md).
const (
	lowest, highest   = 0.95, 1.05
	sampleShare       = 0.95
	sampleRelative    = 0.05
	sampleAbsolute    = 100 * time.Microsecond
	othersAtMost      = 0.03
	unexplainedAtMost = 0.02
)

// side is what one exchange of a pair showed.
type side struct {
	elsewhere time.Duration // injected in other stages by the same disturbance
	injected  time.Duration // by the victim's own measure, in the case's stages together
	stages    attribution.Breakdown
}

// pair is one sample.
type pair struct{ on, off side }

// deviation is what a pair's stages moved more than what was injected.
func (p pair) deviation(stages []attribution.Stage) time.Duration {
	moved := in(stages, p.on.stages) - in(stages, p.off.stages)
	return moved - (p.on.injected - p.off.injected)
}

// middle leaves out the quarter of the pairs with the lowest deviation and that
// with the highest: of the few samples of a short form, one exchange that the
// machine stopped for 10 ms would outweigh all others.
func middle(stages []attribution.Stage, pairs []pair) []pair {
	sorted := slices.SortedFunc(slices.Values(pairs), func(a, b pair) int {
		return cmp.Compare(a.deviation(stages), b.deviation(stages))
	})
	quarter := len(sorted) / 4
	return sorted[quarter : len(sorted)-quarter]
}

// score is the verdict on a case.
type score struct {
	ratio       float64 // change of the stages ÷ change injected, of the sums
	within      float64 // share of samples within the larger of 5 % and 100 µs
	others      float64 // change of all other stages together ÷ injected
	unexplained float64 // of the disturbed exchanges' time
	samples     int
	injected    time.Duration // mean
}

func in(stages []attribution.Stage, b attribution.Breakdown) time.Duration {
	var sum time.Duration
	for _, s := range stages {
		sum += b.Stages[s]
	}
	return sum
}

func judge(stages []attribution.Stage, pairs []pair) score {
	var injected, moved, others, unexplained, total time.Duration
	good := 0
	for _, p := range pairs {
		di := p.on.injected - p.off.injected
		deviation := p.deviation(stages)
		dm := di + deviation
		injected += di
		moved += dm
		others += (p.on.stages.Total - p.off.stages.Total) - dm - (p.on.elsewhere - p.off.elsewhere)
		unexplained += p.on.stages.Stages[attribution.Unexplained]
		total += p.on.stages.Total
		if deviation.Abs() <= max(time.Duration(sampleRelative*float64(di.Abs())), sampleAbsolute) {
			good++
		}
	}
	s := score{samples: len(pairs)}
	if len(pairs) == 0 || injected <= 0 || total <= 0 {
		return s
	}
	s.ratio = float64(moved) / float64(injected)
	s.within = float64(good) / float64(len(pairs))
	s.others = float64(others.Abs()) / float64(injected)
	s.unexplained = float64(unexplained) / float64(total)
	s.injected = injected / time.Duration(len(pairs))
	return s
}

// record writes the case's four figures. The short form has too few samples for a
// verdict on single ones: it judges the sums of the middle half.
func (s score) record(r *results.Run, name, note string, short bool) {
	note = fmt.Sprintf("%s; injected %v on average", note, s.injected.Round(10*time.Microsecond))
	r.Judge(name, s.ratio, "ratio", lowest, results.Higher, s.ratio >= lowest && s.ratio <= highest, s.samples, note)
	if !short {
		r.Add(name+": samples within 5 % or 100 µs", s.within, "share", sampleShare, results.Higher, s.samples, "")
		r.Add(name+": other stages", s.others, "ratio", othersAtMost, results.Lower, s.samples, "")
	}
	r.Add(name+": unexplained", s.unexplained, "share", unexplainedAtMost, results.Lower, s.samples, "")
}

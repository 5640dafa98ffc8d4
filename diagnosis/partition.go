// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"math/bits"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

// shareUnits is the resolution of a share: 1/10,000.
const shareUnits = 10_000

// partition is the TTFT or the gap time of one port, divided among the stages.
// It is known only where there are samples and at least one stage was measured.
type partition struct {
	what  string // as text says it
	whole *attribution.Histogram
	known bool

	total time.Duration
	stage [attribution.NumStages]*attribution.Histogram // nil: not measured
	sum   [attribution.NumStages]time.Duration
	share [attribution.NumStages]float64 // add up to 1
}

// newPartition divides whole among the stages that pick names. What the stages
// leave over is unexplained; where they exceed the whole, because the two were not
// read in the same instant, their own sum is the whole.
func newPartition(what string, whole *attribution.Histogram, stages *[attribution.NumStages]StageTimes,
	pick func(StageTimes) *attribution.Histogram,
) partition {
	p := partition{what: what, whole: whole}
	if whole == nil || whole.Count() == 0 {
		return p
	}
	var sum time.Duration
	for i, s := range stages {
		if h := pick(s); h != nil {
			p.stage[i], p.sum[i], p.known = h, h.Sum(), true
			sum += h.Sum()
		}
	}
	p.total = max(whole.Sum(), sum)
	if !p.known || p.total <= 0 {
		p.known = false
		return p
	}
	p.sum[attribution.Unexplained] += p.total - sum
	for i, n := range apportion(p.sum[:], shareUnits) {
		p.share[i] = float64(n) / shareUnits
	}
	return p
}

func ttftPartition(p *Port) partition {
	return newPartition("TTFT", p.TTFT, &p.Stages, func(s StageTimes) *attribution.Histogram { return s.TTFT })
}

func gapPartition(p *Port) partition {
	return newPartition("gap time", p.Gap, &p.Stages, func(s StageTimes) *attribution.Histogram { return s.Gap })
}

// has says whether anything is to be told about stage s: it was measured, or it
// holds the remainder.
func (p *partition) has(s attribution.Stage) bool {
	return p.known && (p.stage[s] != nil || p.sum[s] > 0)
}

// mean is the stage's time per TTFT or gap, so that the means add up to the mean
// of the whole.
func (p *partition) mean(s attribution.Stage) time.Duration {
	return p.sum[s] / time.Duration(p.whole.Count())
}

func (p *partition) wholeMean() time.Duration {
	return p.total / time.Duration(p.whole.Count())
}

// quantile of a stage; ok is false where only its sum is known.
func (p *partition) quantile(s attribution.Stage, q float64) (d time.Duration, ok bool) {
	if p.stage[s] == nil || p.stage[s].Count() == 0 {
		return 0, false
	}
	return quantile(p.stage[s], q), true
}

// quantile is 0 where all samples are: their bucket's middle would say 512 ns.
func quantile(h *attribution.Histogram, q float64) time.Duration {
	if h.Sum() == 0 {
		return 0
	}
	return h.Quantile(q)
}

// apportion divides units among parts in proportion to them, by largest
// remainder, so that the result adds up to units exactly. Parts are not negative
// and not all 0.
func apportion(parts []time.Duration, units int) []int {
	var total uint64
	for _, d := range parts {
		total += uint64(d)
	}
	got := make([]int, len(parts))
	rest := make([]uint64, len(parts))
	left := units
	for i, d := range parts {
		hi, lo := bits.Mul64(uint64(d), uint64(units))
		q, r := bits.Div64(hi, lo, total)
		got[i], rest[i] = int(q), r
		left -= int(q)
	}
	for ; left > 0; left-- {
		best := 0
		for i := range rest {
			if rest[i] > rest[best] {
				best = i
			}
		}
		got[best]++
		rest[best] = 0
	}
	return got
}

// countFrom returns how many samples lie in buckets that begin at d or above it.
func countFrom(h *attribution.Histogram, d time.Duration) uint64 {
	var n uint64
	for i, c := range h.Used() {
		if low, _ := attribution.BucketBounds(i); low >= d {
			n += c
		}
	}
	return n
}

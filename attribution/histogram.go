// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"math/bits"
	"time"
)

// The bucket layout is shared with bpf/include/histogram.h: log-linear, 64
// linear steps in each power of two from 1.024 µs to 2^38 ns (275 s). A value
// that is reported as the middle of its bucket is wrong by at most 1/129 (0.8 %).
const (
	histMinShift = 10
	histMaxShift = 38
	histSubBits  = 6
	histSub      = 1 << histSubBits

	// Buckets is the number of buckets of a Histogram: one for what is shorter
	// than 1.024 µs, 64 for each power of two, one for what is longer than 275 s.
	Buckets = (histMaxShift-histMinShift)*histSub + 2
)

// Histogram is a distribution of durations. The zero value is empty and ready.
type Histogram struct {
	Counts  [Buckets]uint64
	Total   uint64        // number of samples
	SumTime time.Duration // exact, not estimated from the buckets
	MaxTime time.Duration // 0 where the maximum is not known
}

// Bucket returns the index of the bucket that d falls in.
func Bucket(d time.Duration) int {
	if d < 1<<histMinShift {
		return 0
	}
	if d >= 1<<histMaxShift {
		return Buckets - 1
	}
	shift := bits.Len64(uint64(d)) - 1
	sub := int(uint64(d)>>(shift-histSubBits)) & (histSub - 1)
	return 1 + (shift-histMinShift)*histSub + sub
}

// BucketBounds returns the half-open interval [low, high) of bucket i.
func BucketBounds(i int) (low, high time.Duration) {
	switch {
	case i <= 0:
		return 0, 1 << histMinShift
	case i >= Buckets-1:
		return 1 << histMaxShift, 1 << (histMaxShift + 1)
	}
	shift := (i-1)/histSub + histMinShift
	sub := (i - 1) % histSub
	step := time.Duration(1) << (shift - histSubBits)
	low = time.Duration(1)<<shift + time.Duration(sub)*step
	return low, low + step
}

// Add counts one sample.
func (h *Histogram) Add(d time.Duration) {
	h.Counts[Bucket(d)]++
	h.Total++
	h.SumTime += d
	h.MaxTime = max(h.MaxTime, d)
}

// Merge adds the samples of other.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.Counts {
		h.Counts[i] += n
	}
	h.Total += other.Total
	h.SumTime += other.SumTime
	h.MaxTime = max(h.MaxTime, other.MaxTime)
}

// Count returns the number of samples.
func (h *Histogram) Count() uint64 { return h.Total }

// Sum returns the total time of all samples.
func (h *Histogram) Sum() time.Duration { return h.SumTime }

// Max returns the largest sample, or the upper bound of the highest bucket in
// use where the maximum was not kept.
func (h *Histogram) Max() time.Duration {
	if h.MaxTime > 0 {
		return h.MaxTime
	}
	for i := Buckets - 1; i >= 0; i-- {
		if h.Counts[i] > 0 {
			_, high := BucketBounds(i)
			return high
		}
	}
	return 0
}

// Quantile returns the value below which the share q (0 to 1) of the samples
// lies, as the middle of its bucket and never above Max. An empty histogram
// answers 0; ask Count first.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.Total == 0 {
		return 0
	}
	rank := uint64(q * float64(h.Total))
	if rank >= h.Total {
		rank = h.Total - 1
	}
	var seen uint64
	for i, n := range h.Counts {
		seen += n
		if n > 0 && seen > rank {
			low, high := BucketBounds(i)
			mid := low + (high-low)/2
			if h.MaxTime > 0 {
				mid = min(mid, h.MaxTime)
			}
			return mid
		}
	}
	return h.Max()
}

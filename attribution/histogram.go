// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"iter"
	"math/bits"
	"slices"
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

// Histogram is a distribution of durations. The zero value is empty and ready. It
// holds the buckets in use alone, so an idle port's costs next to nothing. Copies
// share their buckets: add to one of them only.
type Histogram struct {
	used    []used        // in the order of their buckets
	Total   uint64        // number of samples
	SumTime time.Duration // exact, not estimated from the buckets
	MaxTime time.Duration // 0 where the maximum is not known
}

// used is a bucket that holds samples.
type used struct {
	bucket uint32
	n      uint64
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
	h.AddBucket(Bucket(d), 1)
	h.SumTime += d
	h.MaxTime = max(h.MaxTime, d)
}

// AddBucket counts n samples of bucket i; SumTime and MaxTime are the caller's.
func (h *Histogram) AddBucket(i int, n uint64) {
	if n == 0 {
		return
	}
	h.Total += n
	at, there := h.find(i)
	if !there {
		h.used = slices.Insert(h.used, at, used{bucket: uint32(i)})
	}
	h.used[at].n += n
}

func (h *Histogram) find(bucket int) (at int, there bool) {
	if n := len(h.used); n == 0 || int(h.used[n-1].bucket) < bucket {
		return n, false // they mostly come in order
	}
	return slices.BinarySearchFunc(h.used, bucket, func(u used, b int) int { return int(u.bucket) - b })
}

// Used yields the buckets that hold samples, in order, and how many.
func (h *Histogram) Used() iter.Seq2[int, uint64] {
	return func(yield func(int, uint64) bool) {
		for _, u := range h.used {
			if !yield(int(u.bucket), u.n) {
				return
			}
		}
	}
}

// Merge adds the samples of other.
func (h *Histogram) Merge(other *Histogram) {
	a, b := h.used, other.used
	if len(b) > 0 {
		h.used = make([]used, 0, len(a)+len(b))
	}
	for len(b) > 0 {
		switch {
		case len(a) == 0 || b[0].bucket < a[0].bucket:
			h.used, b = append(h.used, b[0]), b[1:]
		case a[0].bucket < b[0].bucket:
			h.used, a = append(h.used, a[0]), a[1:]
		default:
			h.used, a, b = append(h.used, used{a[0].bucket, a[0].n + b[0].n}), a[1:], b[1:]
		}
	}
	if len(other.used) > 0 {
		h.used = append(h.used, a...)
	}
	h.Total += other.Total
	h.SumTime += other.SumTime
	h.MaxTime = max(h.MaxTime, other.MaxTime)
}

// Since returns what came to h after it was as earlier. The maximum is known where
// it was passed. Where h holds less than earlier, it began anew and is all new.
func (h *Histogram) Since(earlier *Histogram) *Histogram {
	d := &Histogram{SumTime: h.SumTime - earlier.SumTime}
	if h.MaxTime > earlier.MaxTime {
		d.MaxTime = h.MaxTime
	}
	if h.Total < earlier.Total || d.SumTime < 0 {
		return h.clone()
	}
	for i, n := range h.Used() {
		was := earlier.in(i)
		if n < was {
			return h.clone()
		}
		d.AddBucket(i, n-was)
	}
	return d
}

func (h *Histogram) clone() *Histogram {
	c := *h
	c.used = slices.Clone(h.used)
	return &c
}

func (h *Histogram) in(bucket int) uint64 {
	if at, there := h.find(bucket); there {
		return h.used[at].n
	}
	return 0
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
	if len(h.used) == 0 {
		return 0
	}
	_, high := BucketBounds(int(h.used[len(h.used)-1].bucket))
	return high
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
	for i, n := range h.Used() {
		seen += n
		if seen > rank {
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

// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"math/bits"
	"sync/atomic"
)

const fine = 6 // bits below the leading one

// Histogram counts nanoseconds with a relative error below 1.6 %. Its size is fixed, so
// that it does not count as memory of the streams.
type Histogram struct {
	counts [(64 - fine + 1) << fine]atomic.Uint64
}

// Quantiles are what a histogram shows, in nanoseconds.
type Quantiles struct {
	Count uint64 `json:"count"`
	P50   uint64 `json:"p50"`
	P99   uint64 `json:"p99"`
	P999  uint64 `json:"p999"`
}

// Add counts one.
func (h *Histogram) Add(ns int64) {
	v := uint64(max(0, ns))
	shift := max(0, bits.Len64(v)-fine-1)
	h.counts[shift<<fine+int(v>>shift)].Add(1)
}

// Merge adds what other counted.
func (h *Histogram) Merge(other *Histogram) {
	for i := range h.counts {
		h.counts[i].Add(other.counts[i].Load())
	}
}

// Quantiles returns what was counted.
func (h *Histogram) Quantiles() (q Quantiles) {
	for i := range h.counts {
		q.Count += h.counts[i].Load()
	}
	q.P50, q.P99, q.P999 = h.quantile(q.Count, 0.5), h.quantile(q.Count, 0.99), h.quantile(q.Count, 0.999)
	return q
}

// quantile is the middle of the bucket that holds it.
func (h *Histogram) quantile(count uint64, q float64) uint64 {
	left := uint64(math.Ceil(float64(count) * q))
	for i := range h.counts {
		n := h.counts[i].Load()
		if n > 0 && left <= n {
			shift := max(0, i>>fine-1)
			return uint64(i-shift<<fine)<<shift + 1<<shift/2
		}
		left -= n
	}
	return 0
}

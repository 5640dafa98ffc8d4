// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func TestBucketsMeet(t *testing.T) {
	_, end := BucketBounds(0)
	for i := 1; i < Buckets; i++ {
		low, high := BucketBounds(i)
		if low != end || high <= low {
			t.Fatalf("bucket %d is [%d, %d), the one before ends at %d", i, low, high, end)
		}
		for _, d := range []time.Duration{low, low + (high-low)/2, high - 1} {
			if b := Bucket(d); b != i {
				t.Fatalf("%d falls in bucket %d, want %d", d, b, i)
			}
		}
		// The middle of a bucket stands for all of it: at most 5 %, in fact 1/129.
		if i < Buckets-1 && float64(high-low)/2/float64(low) > 1.0/128 {
			t.Fatalf("bucket %d is too wide: [%d, %d)", i, low, high)
		}
		end = high
	}
	for _, d := range []time.Duration{-5, 0, 1, 1023} {
		if b := Bucket(d); b != 0 {
			t.Errorf("%d falls in bucket %d, want 0", d, b)
		}
	}
	if b := Bucket(time.Hour); b != Buckets-1 {
		t.Errorf("an hour falls in bucket %d, want the last", b)
	}
}

func TestQuantiles(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var h, other Histogram
	var all []time.Duration
	for range 5000 {
		d := time.Duration(r.ExpFloat64() * float64(20*time.Millisecond))
		all = append(all, d)
		if len(all)%2 == 0 {
			h.Add(d)
		} else {
			other.Add(d)
		}
	}
	h.Merge(&other)
	slices.Sort(all)
	for _, q := range []float64{0, 0.5, 0.9, 0.99, 1} {
		exact := all[min(len(all)-1, int(q*float64(len(all))))]
		got := h.Quantile(q)
		if diff := (got - exact).Abs(); diff > exact/64+1024 {
			t.Errorf("quantile %v is %v, want %v", q, got, exact)
		}
	}
	var sum time.Duration
	for _, d := range all {
		sum += d
	}
	if h.Count() != 5000 || h.Sum() != sum || h.Max() != all[len(all)-1] {
		t.Errorf("count %d, sum %v, max %v; want 5000, %v, %v", h.Count(), h.Sum(), h.Max(), sum, all[len(all)-1])
	}
}

func TestEmptyAndOneSided(t *testing.T) {
	var h Histogram
	if h.Quantile(0.5) != 0 || h.Max() != 0 || h.Count() != 0 {
		t.Errorf("an empty histogram says %v, %v, %d", h.Quantile(0.5), h.Max(), h.Count())
	}
	h.Add(time.Millisecond)
	if q := h.Quantile(0.99); q > time.Millisecond {
		t.Errorf("the quantile %v is above the maximum", q)
	}
	// The maximum is not kept by every source: then the bucket's bound stands for it.
	h.MaxTime = 0
	if low, high := BucketBounds(Bucket(time.Millisecond)); h.Max() != high || h.Max() <= low {
		t.Errorf("the maximum is %v, want %v", h.Max(), high)
	}
	h.Add(time.Hour)
	h.MaxTime = 0
	if h.Max() < 4*time.Minute {
		t.Errorf("the maximum of an overflow is %v", h.Max())
	}
}

// SPDX-License-Identifier: Apache-2.0

package collectors

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/velo-agent/velo-agent/attribution"
)

// written is what a scrape gets of a histogram.
func written(t *testing.T, h *attribution.Histogram, exemplars ...Exemplar) *dto.Histogram {
	t.Helper()
	f := &Family{Name: "f", Type: Histogram, Labels: []string{"b", "a", "empty"}}
	m := f.metric(&row{labels: []string{"of b", "of a", ""}, histogram: h, exemplars: exemplars})
	if len(m.Label) != 2 || m.Label[0].GetName() != "b" || m.Label[0].GetValue() != "of b" || m.Label[1].GetValue() != "of a" {
		t.Errorf("the labels are %v", m.Label)
	}
	return m.Histogram
}

// nativeCounts decodes the native buckets, by index.
func nativeCounts(t *testing.T, h *dto.Histogram) map[int]uint64 {
	t.Helper()
	counts := map[int]uint64{}
	index, at := 0, 0
	var count int64
	for i, span := range h.PositiveSpan {
		if i > 0 && span.GetOffset() < 1 {
			t.Errorf("span %d follows the one before without a gap", i)
		}
		index += int(span.GetOffset())
		for range span.GetLength() {
			count += h.PositiveDelta[at]
			if count <= 0 {
				t.Errorf("native bucket %d has %d samples", index, count)
			}
			counts[index] = uint64(count)
			index++
			at++
		}
	}
	if at != len(h.PositiveDelta) {
		t.Errorf("the spans are %d long, and there are %d deltas", at, len(h.PositiveDelta))
	}
	return counts
}

func TestHistogramBothForms(t *testing.T) {
	noise := rand.New(rand.NewPCG(1, 2))
	random := func(n int) (list []time.Duration) {
		for range n {
			list = append(list, time.Duration(math.Exp(noise.Float64()*27))) // to nine minutes
		}
		return list
	}
	for name, samples := range map[string][]time.Duration{
		"empty":            nil,
		"zeros":            {0, 0, time.Nanosecond},
		"one":              {42 * time.Millisecond},
		"two of one":       {42 * time.Millisecond, 42 * time.Millisecond},
		"neighbours":       {time.Millisecond, 1090 * time.Microsecond, 1189 * time.Microsecond},
		"far apart":        {2 * time.Microsecond, time.Second, 50 * time.Second},
		"beyond a minute":  {time.Minute, 61 * time.Second, 2 * time.Minute, time.Hour},
		"at the bounds":    bounds,
		"around one bound": {1990 * time.Microsecond, 2 * time.Millisecond, 2500 * time.Microsecond, 2501 * time.Microsecond},
		"many":             random(10_000),
	} {
		t.Run(name, func(t *testing.T) {
			var h attribution.Histogram
			var sum time.Duration
			for _, d := range samples {
				h.Add(d)
				sum += d
			}
			got := written(t, &h)
			if got.GetSampleCount() != uint64(len(samples)) || got.GetSampleSum() != sum.Seconds() {
				t.Errorf("%d samples of %v s, want %d of %v", got.GetSampleCount(), got.GetSampleSum(), len(samples), sum)
			}
			wantClassic(t, got, samples)
			wantNative(t, got, samples)
		})
	}
}

// wantClassic: counts are cumulative, and a bucket holds nothing above its bound. Of
// what is below, at most our own bucket's width (1.6 %) is counted further up.
func wantClassic(t *testing.T, h *dto.Histogram, samples []time.Duration) {
	t.Helper()
	if len(h.Bucket) != len(bounds) {
		t.Fatalf("there are %d classic buckets, want %d", len(h.Bucket), len(bounds))
	}
	var last uint64
	for i, b := range h.Bucket {
		var most, least uint64
		for _, d := range samples {
			if d <= bounds[i] {
				most++
			}
			if float64(d) <= float64(bounds[i])*(1-1.0/63) {
				least++
			}
		}
		n := b.GetCumulativeCount()
		if b.GetUpperBound() != bounds[i].Seconds() || n < last || n > most || n < least {
			t.Errorf("up to %v s there are %d samples, want %d to %d", b.GetUpperBound(), n, least, most)
		}
		last = n
	}
}

// wantNative: every sample is in the native bucket that its value belongs to, or, at
// an edge, in the next.
func wantNative(t *testing.T, h *dto.Histogram, samples []time.Duration) {
	t.Helper()
	counts := nativeCounts(t, h)
	total := h.GetZeroCount()
	for _, n := range counts {
		total += n
	}
	if total != uint64(len(samples)) {
		t.Errorf("the native buckets hold %d samples, want %d", total, len(samples))
	}
	for _, d := range samples {
		if d < 1024*time.Nanosecond {
			continue
		}
		low, high := attribution.BucketBounds(attribution.Bucket(d))
		index := int(math.Ceil(math.Log2((low + (high-low)/2).Seconds()) * 8))
		if counts[index] == 0 {
			t.Errorf("%v is not in native bucket %d", d, index)
		}
		upper := time.Duration(math.Exp2(float64(index)/8) * 1e9)
		lower := time.Duration(math.Exp2(float64(index-1)/8) * 1e9)
		if d < 1<<38 && (float64(d) > float64(upper)*1.016 || float64(d) < float64(lower)*0.984) {
			t.Errorf("%v is in the native bucket from %v to %v", d, lower, upper)
		}
	}
	var zeros uint64
	for _, d := range samples {
		if d < 1024*time.Nanosecond {
			zeros++
		}
	}
	if h.GetZeroCount() != zeros {
		t.Errorf("the zero bucket holds %d samples, want %d", h.GetZeroCount(), zeros)
	}
}

func TestExemplars(t *testing.T) {
	at := time.Unix(1700000000, 0)
	samples := []time.Duration{3 * time.Millisecond, 4 * time.Millisecond, 9990 * time.Microsecond, 70 * time.Second}
	var h attribution.Histogram
	var exemplars []Exemplar
	for _, d := range samples {
		h.Add(d)
		exemplars = append(exemplars, Exemplar{d, d.String(), at})
	}
	got := written(t, &h, exemplars...)
	of := map[float64]string{}
	var before uint64
	for _, b := range got.Bucket {
		if e := b.Exemplar; e != nil {
			of[b.GetUpperBound()] = e.Label[0].GetValue()
			if b.GetCumulativeCount() == before {
				t.Errorf("the bucket up to %v s counts nothing and has an exemplar", b.GetUpperBound())
			}
			if e.Label[0].GetName() != "stream" || e.Timestamp.AsTime().Unix() != at.Unix() || e.GetValue() > b.GetUpperBound() {
				t.Errorf("the bucket up to %v s has the exemplar %v", b.GetUpperBound(), e)
			}
		}
		before = b.GetCumulativeCount()
	}
	// The longest of a bucket; 9.99 ms is counted with what may be 10.1 ms.
	if len(of) != 2 || of[0.005] != "4ms" || of[0.025] != "9.99ms" {
		t.Errorf("the exemplars are %v", of)
	}
}

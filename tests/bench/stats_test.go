// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"math"
	"testing"
)

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		xs   []float64
		want float64
	}{
		{nil, 0},
		{[]float64{7}, 7},
		{[]float64{3, 1}, 2},
		{[]float64{9, 1, 5}, 5},
	} {
		if got := Median(c.xs); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.xs, got, c.want)
		}
	}
}

// The interval of a median of 30 normal samples holds the true one in about 95 %
// of the runs, and is as wide as theory says: 2 × 1.96 × 1.2533 σ/√n.
func TestBootstrapOfNormal(t *testing.T) {
	const runs, n, mean, sigma = 200, 30, 10, 2
	rng := Rand(1)
	held, width := 0, 0.0
	for range runs {
		xs := make([]float64, n)
		for i := range xs {
			xs[i] = mean + sigma*rng.NormFloat64()
		}
		i := MedianOf(xs)
		if i.Low <= mean && mean <= i.High {
			held++
		}
		width += i.Width() / runs
	}
	if share := float64(held) / runs; share < 0.90 || share > 0.99 {
		t.Errorf("%.3f of the intervals hold the true median, want about 0.95", share)
	}
	if want := 2 * 1.96 * 1.2533 * sigma / math.Sqrt(n); math.Abs(width-want) > want/5 {
		t.Errorf("intervals of %.2f, want about %.2f", width, want)
	}
}

func TestRatioOfPairedSamples(t *testing.T) {
	rng := Rand(2)
	xs, ys := make([]float64, 40), make([]float64, 40)
	for i := range xs {
		ys[i] = 1 + rng.Float64() // noise that both share
		xs[i] = 1.5 * ys[i]
	}
	r := RatioOf(xs, ys)
	if math.Abs(r.Value-1.5) > 1e-9 || r.Width() > 1e-9 {
		t.Errorf("ratio %v, want 1.5 without any width: the noise is common to both", r)
	}
	if got := RatioOf(xs, make([]float64, 40)); got.Value != 0 {
		t.Errorf("ratio to nothing %v, want 0", got)
	}
}

func TestBootstrapOfConstantAndNothing(t *testing.T) {
	if got := MedianOf([]float64{4, 4, 4}); got != (Interval{4, 4, 4}) {
		t.Errorf("of a constant: %v", got)
	}
	if got := MedianOf(nil); got != (Interval{}) {
		t.Errorf("of nothing: %v", got)
	}
	a, b := MedianOf([]float64{1, 5, 2, 8}), MedianOf([]float64{1, 5, 2, 8})
	if a != b {
		t.Errorf("two runs differ: %v, %v", a, b)
	}
}

func TestMisses(t *testing.T) {
	for _, c := range []struct {
		i       Interval
		limit   float64
		atLeast bool
		want    bool
	}{
		{Interval{2, 1.9, 2.1}, 1.8, false, true},
		{Interval{2, 1.7, 2.1}, 1.8, false, false}, // the interval reaches the limit
		{Interval{0.8, 0.7, 0.85}, 0.89, true, true},
		{Interval{0.8, 0.7, 0.9}, 0.89, true, false},
	} {
		if got := c.i.Misses(c.limit, c.atLeast); got != c.want {
			t.Errorf("%v beyond %v (at least: %v): %v", c.i, c.limit, c.atLeast, got)
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Seed makes the random order and the bootstrap the same in every run.
const Seed = 20240611

// resamples of one bootstrap: the interval's ends then move by some 2 % of its width.
const resamples = 4000

// Rand returns the generator that a seed stands for.
func Rand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// Median returns the median of xs, 0 of none. It leaves xs as it is.
func Median(xs []float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	s := slices.Clone(xs)
	slices.Sort(s)
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// Interval is an estimate with its 95 % interval.
type Interval struct{ Value, Low, High float64 }

// String prints the interval with three digits.
func (i Interval) String() string { return fmt.Sprintf("%.3g [%.3g, %.3g]", i.Value, i.Low, i.High) }

// Width is the length of the interval.
func (i Interval) Width() float64 { return i.High - i.Low }

// Misses reports whether the whole interval lies beyond the limit, which is an
// upper one, or a lower one if atLeast is set.
func (i Interval) Misses(limit float64, atLeast bool) bool {
	if atLeast {
		return i.High < limit
	}
	return i.Low > limit
}

// Bootstrap estimates a statistic of n rounds by the percentile method: f is given
// the rounds to use, first all of them in order, then resamples of them.
func Bootstrap(n int, f func(rounds []int) float64) Interval {
	if n == 0 {
		return Interval{}
	}
	rounds := make([]int, n)
	for i := range rounds {
		rounds[i] = i
	}
	out := Interval{Value: f(rounds)}
	rng := Rand(Seed)
	values := make([]float64, resamples)
	for r := range values {
		for i := range rounds {
			rounds[i] = rng.IntN(n)
		}
		values[r] = f(rounds)
	}
	slices.Sort(values)
	out.Low, out.High = values[resamples*25/1000], values[resamples*975/1000]
	return out
}

// MedianOf estimates the median of xs.
func MedianOf(xs []float64) Interval {
	return Bootstrap(len(xs), func(rounds []int) float64 { return Median(pick(xs, rounds)) })
}

// RatioOf estimates median(xs) ÷ median(ys), whose elements belong to the same
// rounds and are drawn together. A median of ys that is not positive gives 0.
func RatioOf(xs, ys []float64) Interval {
	return Bootstrap(min(len(xs), len(ys)), func(rounds []int) float64 {
		d := Median(pick(ys, rounds))
		if d <= 0 {
			return 0
		}
		return Median(pick(xs, rounds)) / d
	})
}

func pick(xs []float64, at []int) []float64 {
	out := make([]float64, len(at))
	for i, a := range at {
		out[i] = xs[a]
	}
	return out
}

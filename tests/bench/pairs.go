// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// Pair is one measurement between two without anything attached.
type Pair[S any] struct{ Before, On, After S }

// Arm is one thing whose cost is measured. Measure is told whether it is on.
type Arm[S any] struct {
	Name    string
	On, Off func() error
	Measure func(on bool) (S, error)
}

// Pairs runs a number of rounds.
type Pairs[S any] struct {
	Rounds int
	Arms   []Arm[S]
	// Settle lets what switching leaves behind in the kernel pass (text patched,
	// maps freed after a grace period) before a slice is measured.
	Settle time.Duration
	// Share makes the measurement after one pair the one before the next, where
	// all arms measure the same thing and a measurement takes long.
	Share bool
	// Others counts the programs that others have attached now: a hook that is in
	// use already costs less to use. Each pair waits for a moment without any, as
	// long as Patience lasts; one in which they change is measured once more.
	Others   func() (int, error)
	Patience time.Duration
	// Progress is told after each round.
	Progress func(round int)
	// Repeated is how many pairs had to be measured again, Shared how many of the
	// result had programs of others beside them.
	Repeated, Shared int
}

const attempts = 4

// Run measures every arm once a round, in random order. The result holds the
// pairs of each arm by round.
func (p *Pairs[S]) Run(rng *rand.Rand) (map[string][]Pair[S], error) {
	out := map[string][]Pair[S]{}
	var off *sample[S]
	for round := range p.Rounds {
		for _, i := range rng.Perm(len(p.Arms)) {
			if !p.Share {
				off = nil
			}
			pair, after, err := p.pair(&p.Arms[i], off)
			if err != nil {
				return nil, fmt.Errorf("measuring %s: %w", p.Arms[i].Name, err)
			}
			out[p.Arms[i].Name] = append(out[p.Arms[i].Name], pair)
			off = after
		}
		if p.Progress != nil {
			p.Progress(round + 1)
		}
	}
	return out, nil
}

// sample is a measurement and the other programs that were attached meanwhile.
type sample[S any] struct {
	value  S
	others int
}

// pair measures once with the arm on. before may be nil.
func (p *Pairs[S]) pair(a *Arm[S], before *sample[S]) (Pair[S], *sample[S], error) {
	for try := 1; ; try++ {
		waited, err := p.wait()
		if err != nil {
			return Pair[S]{}, nil, err
		}
		if waited {
			before = nil
		}
		three, err := p.three(a, before)
		if err != nil {
			return Pair[S]{}, nil, err
		}
		n := three[0].others
		if try == attempts || n >= 0 && n == three[1].others && n == three[2].others {
			if n != 0 {
				p.Shared++
			}
			return Pair[S]{three[0].value, three[1].value, three[2].value}, three[2], nil
		}
		p.Repeated++
		before = nil
	}
}

// wait waits until others have nothing attached, or patience has ended.
func (p *Pairs[S]) wait() (waited bool, err error) {
	const step = 20 * time.Millisecond
	for ; p.Patience > 0; p.Patience -= step {
		if n, err := p.Others(); n == 0 || err != nil {
			return waited, err
		}
		waited = true
		time.Sleep(step)
	}
	return waited, nil
}

// three measures without, with, and without.
func (p *Pairs[S]) three(a *Arm[S], before *sample[S]) (three [3]*sample[S], err error) {
	if before == nil {
		if before, err = p.slice(a, false); err != nil {
			return three, err
		}
	}
	three[0] = before
	if err := a.On(); err != nil {
		return three, fmt.Errorf("attaching: %w", err)
	}
	three[1], err = p.slice(a, true)
	if err := errors.Join(err, a.Off()); err != nil {
		return three, err
	}
	three[2], err = p.slice(a, false)
	return three, err
}

// slice measures once; others is -1 if it changed meanwhile.
func (p *Pairs[S]) slice(a *Arm[S], on bool) (s *sample[S], err error) {
	time.Sleep(p.Settle)
	s = &sample[S]{}
	if s.others, err = p.Others(); err != nil {
		return nil, err
	}
	if s.value, err = a.Measure(on); err != nil {
		return nil, err
	}
	after, err := p.Others()
	if after != s.others {
		s.others = -1
	}
	return s, err
}

// Added returns what each pair's arm added to f, in f's unit.
func Added[S any](pairs []Pair[S], f func(S) float64) []float64 {
	out := make([]float64, len(pairs))
	for i, p := range pairs {
		out[i] = f(p.On) - (f(p.Before)+f(p.After))/2
	}
	return out
}

// Relative returns f of each pair's arm as a multiple of f without it.
func Relative[S any](pairs []Pair[S], f func(S) float64) []float64 {
	out := make([]float64, len(pairs))
	for i, p := range pairs {
		out[i] = 2 * f(p.On) / (f(p.Before) + f(p.After))
	}
	return out
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/velo-agent/velo-agent/tests/bench"
	"github.com/velo-agent/velo-agent/tests/results"
)

// rig is what all measurements share.
type rig struct {
	out      *results.Run
	judge    bool          // false in the short form: no ratio is held against its limit
	pairs    int           // per arm
	patience time.Duration // for others to detach theirs

	spare   uint16                  // a port on which nothing ever happens
	hooks   map[string][]bench.Hook // of the arms with empty programs
	opening time.Duration           // how long the agent takes to open
	watcher *bench.Child            // counts the programs of others
	own     int                     // programs that are ours, but not the watcher's
	shared  float64                 // share of the last run's pairs beside programs of others
	stops   []func()
	base    int // stops of what all parts share
}

func newRig(out *results.Run, judge bool, p plan) (*rig, error) {
	r := &rig{out: out, judge: judge, pairs: p.pairs, patience: p.patience, hooks: map[string][]bench.Hook{}}
	idle, err := r.child("Echo")
	if err != nil {
		return r, err
	}
	var port int
	if err := idle.Call("Echo.Listen", bench.Where{}, &port); err != nil {
		return r, err
	}
	r.spare = uint16(port)
	if r.watcher, err = r.child("Agent"); err != nil {
		return r, err
	}
	r.base = len(r.stops)
	return r, r.learnHooks()
}

// learnHooks opens the agent in both forms to see what it attaches to.
func (r *rig) learnHooks() error {
	for arm, of := range map[string]string{bench.ArmEmpty: bench.ArmUnwatched, bench.ArmEmptyNoSendStart: bench.ArmNoSendStart} {
		var at bench.Attached
		if err := r.watcher.Call("Agent.Attach", bench.Attachment{Arm: of, Port: r.spare}, &at); err != nil {
			return err
		}
		if err := r.watcher.Call("Agent.Detach", bench.Nothing{}, &bench.Nothing{}); err != nil {
			return err
		}
		if len(at.Missing) > 0 {
			fmt.Printf("MISSING signals, so that the cost is not the whole: %s\n", strings.Join(at.Missing, ", "))
		}
		r.hooks[arm], r.opening = at.Hooks, at.Took
	}
	var names []string
	for _, h := range r.hooks[bench.ArmEmpty] {
		names = append(names, h.Name)
	}
	fmt.Printf("%d hooks: %s\nopening the agent takes %v\n", len(names), strings.Join(names, " "), r.opening.Round(time.Millisecond))
	n, err := r.others()
	if n > 0 {
		fmt.Printf("others have %d programs attached: they share the kernel's price of a hook\n", n)
	}
	return err
}

// child starts a child process that close ends.
func (r *rig) child(service string, env ...string) (*bench.Child, error) {
	c, err := bench.Start(service, env...)
	if err != nil {
		return nil, err
	}
	r.stops = append(r.stops, c.Stop)
	return c, nil
}

func (r *rig) close() { r.closeFrom(0) }

// endPart ends the children of one part: they shall not disturb the next.
func (r *rig) endPart() { r.closeFrom(r.base) }

func (r *rig) closeFrom(n int) {
	for _, stop := range slices.Backward(r.stops[n:]) {
		stop()
	}
	r.stops = r.stops[:n]
}

// others counts the attached programs that are not of a pair's arm.
func (r *rig) others() (n int, err error) {
	err = r.watcher.Call("Agent.Others", bench.Nothing{}, &n)
	return n - r.own, err
}

// attachment says what an arm that watches port attaches.
func (r *rig) attachment(arm string, port uint16) bench.Attachment {
	if arm == bench.ArmUnwatched {
		port = r.spare
	}
	return bench.Attachment{Arm: arm, Port: port, Hooks: r.hooks[arm]}
}

// held makes an arm that is loaded once, in a process of its own, and then
// switched on and off in milliseconds.
func held[S any](r *rig, name string, port uint16, measure func(on bool) (S, error)) (bench.Arm[S], error) {
	c, err := r.child("Agent")
	if err != nil {
		return bench.Arm[S]{}, err
	}
	at := r.attachment(name, port)
	at.Hold = true
	var got bench.Attached
	if err := c.Call("Agent.Attach", at, &got); err != nil {
		return bench.Arm[S]{}, fmt.Errorf("loading %s: %w", name, err)
	}
	flip := func(on bool) error {
		r.own = 0
		if on {
			r.own = len(got.Hooks)
		}
		return c.Call("Agent.Switch", on, &bench.Nothing{})
	}
	return bench.Arm[S]{
		Name: name, Measure: measure,
		On:  func() error { return flip(true) },
		Off: func() error { return flip(false) },
	}, nil
}

// opened makes an arm that opens the agent each time: its user space works only
// while it is on.
func opened[S any](r *rig, c *bench.Child, name string, port uint16, measure func(on bool) (S, error)) bench.Arm[S] {
	return bench.Arm[S]{
		Name: name, Measure: measure,
		On: func() error {
			if name == bench.ArmNull {
				time.Sleep(r.opening)
			}
			var got bench.Attached
			err := c.Call("Agent.Attach", r.attachment(name, port), &got)
			r.own = len(got.Hooks)
			return err
		},
		Off: func() error {
			r.own = 0
			return c.Call("Agent.Detach", bench.Nothing{}, &bench.Nothing{})
		},
	}
}

// run runs the arms in turn and says how it goes on.
func run[S any](r *rig, title string, p *bench.Pairs[S]) (map[string][]bench.Pair[S], error) {
	begun := time.Now()
	p.Others, p.Patience = r.others, r.patience
	p.Progress = func(round int) {
		if round%10 == 0 || round == p.Rounds {
			fmt.Fprintf(os.Stderr, "%s: %d of %d rounds, %v\n", title, round, p.Rounds, time.Since(begun).Round(time.Second))
		}
	}
	out, err := p.Run(bench.Rand(bench.Seed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", title, err)
	}
	r.patience, r.shared = p.Patience, float64(p.Shared)/float64(p.Rounds*len(p.Arms))
	if p.Repeated+p.Shared > 0 {
		fmt.Printf("%s: %d pairs were measured again because programs of others came or went; %d of the result had some beside them\n", title, p.Repeated, p.Shared)
	}
	return out, nil
}

// limit is a bound on an estimate.
type limit struct {
	name, unit string
	goal       float64
	better     results.Better
}

// check records an estimate against its limit: missed only if the whole interval
// is beyond it. A reason why it cannot be told leaves it open.
func (r *rig) check(l limit, i bench.Interval, samples int, note, unclear string) {
	note = strings.TrimSuffix(fmt.Sprintf("%v; %s", i, note), "; ")
	switch {
	case !r.judge:
		r.out.Skip(l.name, l.unit, l.goal, l.better, note+"; the short form does not judge it")
	case unclear != "":
		r.out.Skip(l.name, l.unit, l.goal, l.better, note+"; "+unclear)
	default:
		missed := i.Misses(l.goal, l.better == results.Higher)
		r.out.Judge(l.name, i.Value, l.unit, l.goal, l.better, !missed, samples, note)
	}
}

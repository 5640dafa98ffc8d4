// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/velo-agent/velo-agent/tests/results"
	"github.com/velo-agent/velo-agent/tests/rig/carrier"
	"github.com/velo-agent/velo-agent/tests/rig/load"
	"github.com/velo-agent/velo-agent/tests/rig/side"
)

// rig runs repetitions.
type rig struct {
	out      *results.Run
	reps     int
	slack    float64           // goals are so many times easier
	veloPath string            // of the Rust program
	absent   map[string]string // why a carrier takes no part
	figures  []figuresOf       // all that were measured
}

// measured is what the arms did in a case.
type measured struct {
	*table
	testCase
}

func (r *rig) measure(ctx context.Context, c testCase, all []arm) (measured, error) {
	var part []arm
	for _, a := range all {
		if a.takesPart(c) {
			part = append(part, a)
		}
	}
	t, err := r.interleave(ctx, c.String(), part, func(a arm) (figures, error) { return r.repetition(ctx, a, c) })
	return measured{t, c}, err
}

// interleave runs the repetitions of a case. The arms take turns, each time in another
// order, so that what the machine does by itself meets all of them.
func (r *rig) interleave(ctx context.Context, name string, arms []arm, run func(arm) (figures, error)) (*table, error) {
	t := &table{name: name, arms: arms, reps: map[arm][]figures{}, faults: map[arm]error{}}
	for rep := range r.reps {
		for i := range arms {
			a := arms[(i+rep)%len(arms)]
			if t.faults[a] != nil {
				continue
			}
			f, err := run(a)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				t.faults[a] = err
				delete(t.reps, a)
				continue
			}
			t.reps[a] = append(t.reps[a], f)
		}
	}
	return t, nil
}

// limit is far beyond what the slowest carrier takes.
func limit(c testCase) time.Duration {
	return time.Minute + time.Duration(c.streams)*time.Duration(c.records)*100*time.Microsecond
}

// repetition runs one arm once, in two fresh processes.
func (r *rig) repetition(ctx context.Context, a arm, c testCase) (f figures, err error) {
	err = r.withPair(ctx, a, 0, limit(c), func(p *pair) error {
		f, err = p.run(a, c)
		return err
	})
	return f, err
}

// program is what an arm's processes run.
func (r *rig) program(a arm) (string, error) {
	if a.carrier == velo {
		return r.veloPath, nil
	}
	path, err := os.Executable()
	if err != nil {
		err = fmt.Errorf("finding one's own program: %w", err)
	}
	return path, err
}

// withPair starts an arm's two processes for use, and ends them.
func (r *rig) withPair(ctx context.Context, a arm, threads int, most time.Duration, use func(*pair) error) (err error) {
	program, err := r.program(a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("it took longer than %v", most))
	defer cancel()
	var p pair
	defer func() {
		if err != nil {
			err = errors.Join(err, context.Cause(ctx))
			cancel() // one may wait for the other, which failed
		}
		if text := p.stop(); err != nil && text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
	}()
	if p.consumer, err = startChild(ctx, program, side.Consumer, threads); err != nil {
		return err
	}
	if p.producer, err = startChild(ctx, program, side.Producer, threads); err != nil {
		return err
	}
	return use(&p)
}

// pair are the two processes.
type pair struct{ consumer, producer *child }

func (p *pair) stop() string {
	var texts []string
	for _, c := range []*child{p.consumer, p.producer} {
		if c == nil {
			continue
		}
		if text := c.stop(); text != "" {
			texts = append(texts, c.role+": "+text)
		}
	}
	return strings.Join(texts, "; ")
}

// both sends a command to each, and returns the first error as soon as it is there.
func (p *pair) both(consumer, producer side.Command) (c, q side.Answer, err error) {
	told := make(chan error, 2)
	go func() {
		var err error
		c, err = p.consumer.call(consumer)
		told <- err
	}()
	go func() {
		var err error
		q, err = p.producer.call(producer)
		told <- err
	}()
	for range 2 {
		if err := <-told; err != nil {
			return side.Answer{}, side.Answer{}, err
		}
	}
	return c, q, nil
}

// each sends the same command to both.
func (p *pair) each(cmd string) (consumer, producer side.Answer, err error) {
	return p.both(simple(cmd), simple(cmd))
}

func simple(cmd string) side.Command { return side.Command{Cmd: cmd} }

// connect prepares the two and connects them.
func (p *pair) connect(spec *carrier.Spec) (consumer, producer side.Answer, err error) {
	prepare := side.Command{Cmd: "prepare", Spec: spec}
	if consumer, producer, err = p.both(prepare, prepare); err != nil {
		return consumer, producer, err
	}
	return p.both(side.Command{Cmd: "connect", Address: producer.Address}, side.Command{Cmd: "connect", Address: consumer.Address})
}

// run runs the commands of side.Serve.
func (p *pair) run(a arm, c testCase) (figures, error) {
	var t taken
	var err error
	if t.consumer.idle, t.producer.idle, err = p.connect(a.spec(c)); err != nil {
		return nil, err
	}
	if a.carrier != side.Floor {
		if t.setup, err = p.consumer.call(simple("setup")); err != nil {
			return nil, err
		}
	}
	if t.consumer.before, t.producer.before, err = p.each("mark"); err != nil {
		return nil, err
	}
	node := readBusy()
	began := load.Now()
	done, begun, err := p.both(simple("wait"), simple("go"))
	if err != nil {
		return nil, err
	}
	t.nodeCPU, t.watched = readBusy()-node, load.Now()-began
	t.consumer.after = done
	if t.producer.after, err = p.producer.call(simple("done")); err != nil {
		return nil, err
	}
	t.begun, t.ended = begun.BegunNS, done.EndedNS
	return t.figures(a, c), nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/velo-agent/velo-agent/tests/bench"
	"github.com/velo-agent/velo-agent/tests/results"
)

// programs prints what each program takes and how often it runs for a message (100
// bytes one way), beside an empty program on the same hook, with the kernel's
// statistics on, which take some time themselves.
func programs(r *rig, p *pingPong, messages int) error {
	empty, _, err := costs(r, bench.ArmEmpty, p, messages)
	if err != nil {
		return err
	}
	traced, _, err := costs(r, bench.ArmTraced, p, messages)
	if err != nil {
		return err
	}
	counted, sent, err := costs(r, bench.ArmWatched, p, messages)
	if err != nil {
		return err
	}
	emptyNS, tracedNS := byHook(empty), byHook(traced)
	var socket float64
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "program, both ends watched\thook\tns per run\ttraced\tempty\truns per message\tns per message\n")
	for _, c := range counted {
		runs := float64(c.Runs) / float64(sent)
		fmt.Fprintf(w, "  %s\t%s\t%.0f\t%.0f\t%.0f\t%.3f\t%.0f\n", c.Program, c.Hook, nsPerRun(c), tracedNS[c.Hook], emptyNS[c.Hook], runs, runs*nsPerRun(c))
		if !strings.HasPrefix(c.Hook, "sched_") { // those run for all that the node does
			socket += runs
		}
	}
	w.Flush()
	fmt.Println()
	r.out.Add("runs of the socket programs per message", socket, "runs", 6, results.Lower, sent,
		"send_start, left, arrived, read and accepted see each message once at most; an acknowledgement of its own adds nothing")
	return nil
}

// costs lets messages pass with an arm attached and statistics on.
func costs(r *rig, arm string, p *pingPong, messages int) (costs []bench.ProgramCost, sent int, err error) {
	c := r.watcher
	if err := c.Call("Agent.Attach", r.attachment(arm, p.port), &bench.Attached{}); err != nil {
		return nil, 0, err
	}
	if err := c.Call("Agent.Statistics", true, &bench.Nothing{}); err != nil {
		return nil, 0, err
	}
	if sent, err = p.atLeast(messages); err != nil {
		return nil, 0, err
	}
	if err := c.Call("Agent.Statistics", false, &bench.Nothing{}); err != nil {
		return nil, 0, err
	}
	if err := c.Call("Agent.Costs", bench.Nothing{}, &costs); err != nil {
		return nil, 0, err
	}
	return costs, sent, c.Call("Agent.Detach", bench.Nothing{}, &bench.Nothing{})
}

func byHook(costs []bench.ProgramCost) map[string]float64 {
	out := map[string]float64{}
	for _, c := range costs {
		out[c.Hook] = nsPerRun(c)
	}
	return out
}

func nsPerRun(c bench.ProgramCost) float64 {
	if c.Runs == 0 {
		return 0
	}
	return float64(c.Time) / float64(c.Runs)
}

// atLeast plays until so many messages have passed and returns how many did.
func (p *pingPong) atLeast(messages int) (int, error) {
	sent := 0
	for sent < messages {
		b, err := p.batches(p.slice)
		if err != nil {
			return sent, err
		}
		sent += 2 * bench.BatchSize * len(b)
	}
	return sent, nil
}

// wakeUps counts how often the agent's threads were woken while messages passed,
// every exchange leaving a record, beyond what its timers do without any.
func wakeUps(r *rig, p *pingPong, messages int) error {
	c, err := r.child("Agent")
	if err != nil {
		return err
	}
	if err := c.Call("Agent.Attach", r.attachment(bench.ArmTraced, p.port), &bench.Attached{}); err != nil {
		return err
	}
	idle, err := switches(c, func() error { time.Sleep(2 * time.Second); return nil })
	if err != nil {
		return err
	}
	sent := 0
	busy, err := switches(c, func() (err error) {
		sent, err = p.atLeast(messages)
		return err
	})
	if err != nil {
		return err
	}
	more := max(0, busy.n-idle.n*busy.took.Seconds()/idle.took.Seconds())
	r.out.Add("wake-ups of the agent per 100,000 messages, beyond its timers", more*1e5/float64(sent), "wake-ups", 5000, results.Lower, sent,
		fmt.Sprintf("%.0f a second with %.0f messages a second, %.0f a second without any", busy.n/busy.took.Seconds(), float64(sent)/busy.took.Seconds(), idle.n/idle.took.Seconds()))
	return c.Call("Agent.Detach", bench.Nothing{}, &bench.Nothing{})
}

type counted struct {
	n    float64
	took time.Duration
}

// switches counts the voluntary context switches of a child while f runs.
func switches(c *bench.Child, f func() error) (counted, error) {
	before, err := c.Usage()
	if err != nil {
		return counted{}, err
	}
	begun := time.Now()
	if err := f(); err != nil {
		return counted{}, err
	}
	took := time.Since(begun)
	after, err := c.Usage()
	return counted{float64(after.Switches - before.Switches), took}, err
}

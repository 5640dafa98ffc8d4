// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/velo-agent/velo-agent/diagnosis"
	"github.com/velo-agent/velo-agent/tests/bench"
	"github.com/velo-agent/velo-agent/tests/results"
)

// socketPrograms run for each message, once at most, on the sender's or the
// receiver's side. The scheduler's programs run for the whole node and depend on
// what else it does.
var socketPrograms = []string{"arrived", "read_done", "read_return", "send_begins", "sent", "first_receive", "acknowledged"}

// programs prints what each program takes and how often it runs for a message (100
// bytes one way), with the kernel's statistics on, which cost something themselves.
func programs(r *rig, p *pingPong, messages int) error {
	c := r.watcher
	var at bench.Attached
	if err := c.Call("Agent.Attach", r.attachment(bench.ArmTraced, p.port), &at); err != nil {
		return err
	}
	if err := c.Call("Agent.Statistics", true, &bench.Nothing{}); err != nil {
		return err
	}
	sent, err := p.atLeast(messages)
	if err != nil {
		return err
	}
	if err := c.Call("Agent.Statistics", false, &bench.Nothing{}); err != nil {
		return err
	}
	var seen bench.Seen
	if err := c.Call("Agent.Seen", bench.Nothing{}, &seen); err != nil {
		return err
	}
	if err := c.Call("Agent.Detach", bench.Nothing{}, &bench.Nothing{}); err != nil {
		return err
	}
	runs := printPrograms(seen.Programs, sent)
	r.out.Add("runs of the socket programs per message", runs, "runs", 6, results.Lower, sent,
		"send_start, left, arrived, read and accepted see each message once at most; an acknowledgement of its own adds nothing")
	return nil
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

func printPrograms(programs []diagnosis.ProgramCost, messages int) (perMessage float64) {
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintf(w, "program, both ends watched and traced\tns per run\truns per message\tns per message\n")
	for _, p := range programs {
		runs := float64(p.Runs) / float64(messages)
		fmt.Fprintf(w, "  %s\t%.0f\t%.3f\t%.0f\n", p.Name, p.NSPerRun, runs, runs*p.NSPerRun)
		if slices.Contains(socketPrograms, p.Name) {
			perMessage += runs
		}
	}
	w.Flush()
	fmt.Println()
	return perMessage
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
	r.out.Add("wake-ups of the agent per 100,000 messages, beyond its timers", more*1e5/float64(sent), "wake-ups", 1000, results.Lower, sent,
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

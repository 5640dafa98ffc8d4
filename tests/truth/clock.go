// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/velo-agent/velo-agent/agent"
	"github.com/velo-agent/velo-agent/tests/results"
	"github.com/velo-agent/velo-agent/tests/victims"
)

const clockStreams = 64

// clock compares the quantiles of the counted tier with those of 64 clients that
// stamp right after each read.
func clock(ctx context.Context, r *results.Run, rounds int) error {
	v, err := victims.Start(ctx, victims.Config{Kind: victims.Go, CPU: serverCPU})
	if err != nil {
		return fmt.Errorf("starting the victim: %w", err)
	}
	defer v.Stop()
	s, err := agent.Open(ctx, agent.Options{Watch: agent.Watch{Ports: []uint16{uint16(v.Port)}}, ExactAccept: true})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Missing(); err != nil {
		return err
	}
	seen, err := victims.Many(clockStreams, rounds, victims.ClientConfig{Addr: v.Addr(), CPU: clientCPU}, streamed)
	if err != nil {
		return err
	}
	m, err := s.Measure()
	if err != nil {
		return err
	}
	var ttft, gaps []time.Duration
	for i := range seen {
		ttft = append(ttft, seen[i].TTFT())
		gaps = append(gaps, seen[i].Gaps()...)
	}
	p := m.Ports[0]
	for _, q := range []struct {
		name     string
		at       float64
		absolute time.Duration
		relative float64
	}{{"p50", 0.5, 300 * time.Microsecond, 0.01}, {"p90", 0.9, 300 * time.Microsecond, 0.01}, {"p99", 0.99, time.Millisecond, 0.02}} {
		for _, d := range []struct {
			name   string
			ours   time.Duration
			theirs []time.Duration
		}{{"TTFT ", p.TTFT.Quantile(q.at), ttft}, {"gap ", p.Gap.Quantile(q.at), gaps}} {
			theirs := quantile(d.theirs, q.at)
			allowed := max(q.absolute, time.Duration(q.relative*float64(theirs)))
			off := float64((d.ours - theirs).Abs()) / float64(allowed)
			r.Add("64 streams against the clients' clock: "+d.name+q.name, off, "×", 1, results.Lower, len(d.theirs),
				fmt.Sprintf("agent %v, clients %v; unit: the %v that are allowed", d.ours, theirs, allowed))
		}
	}
	return nil
}

// streamed asks for an answer whose times are spread evenly.
func streamed(client, round int) victims.Request {
	rng := rand.New(rand.NewPCG(uint64(client), uint64(round)))
	spread := func(least, most int) time.Duration {
		return time.Duration(least+rng.IntN(most-least)) * time.Microsecond
	}
	c := victims.Case{Engine: spread(10_000, 60_000), Gaps: []time.Duration{0}}
	for range 31 {
		c.Gaps = append(c.Gaps, spread(3_000, 12_000))
	}
	return victims.Request{Case: c}
}

func quantile(ds []time.Duration, q float64) time.Duration {
	ds = slices.Sorted(slices.Values(ds))
	return ds[min(int(q*float64(len(ds))), len(ds)-1)]
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/velo-agent/velo-agent/agent"
	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/diagnosis"
	"github.com/velo-agent/velo-agent/tests/peers"
	"github.com/velo-agent/velo-agent/tests/results"
)

const pause = 3 * time.Second

// stopped halts Dynamo's worker for three seconds in mid-stream. Dynamo counts the
// request as a success; the agent must show one gap of that length in engine.
func stopped(ctx context.Context, r *results.Run, name string, _ time.Duration, reports string) error {
	d, err := peers.StartDynamo(ctx, peers.Config{Log: os.Stderr})
	if err != nil {
		return err
	}
	defer d.Stop()
	var mu sync.Mutex
	var long []*attribution.Trace
	s, err := agent.Open(ctx, agent.Options{
		Watch: agent.Watch{Ports: []uint16{uint16(d.HTTPPort)}}, ExactAccept: true,
		OnTrace: func(t *attribution.Trace) {
			if t.Kind == attribution.TraceGap && t.Counted.Total > pause/2 {
				mu.Lock()
				long = append(long, t)
				mu.Unlock()
			}
		},
	})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Missing(); err != nil {
		return err
	}
	var timing peers.Timing
	var streamErr error
	done := make(chan struct{})
	go func() {
		defer close(done)
		timing, streamErr = peers.Stream(ctx, d.URL, d.Model, peers.Options{Tokens: 200})
	}()
	time.Sleep(400 * time.Millisecond)
	really, err := d.PauseWorker(ctx, pause)
	<-done
	if err != nil || streamErr != nil {
		return fmt.Errorf("pausing the worker: %v, streaming: %w", err, streamErr)
	}
	time.Sleep(100 * time.Millisecond) // the ring is drained every 20 ms
	m, err := s.Measure()
	if err != nil {
		return err
	}
	rep := diagnosis.Build(m)
	if err := keep(rep, filepath.Join(reports, "dynamo-stopped.md")); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	r.Add(name+": gaps beyond half the stop", float64(len(long)), "gaps", 1, results.Lower, 1, "one is right")
	if len(long) == 0 {
		r.Add(name+": stop seen", 0, "ratio", 0.99, results.Higher, 1, "no long gap was seen")
		return nil
	}
	g := long[0].Counted
	note := fmt.Sprintf("stopped %v, gap %v, clients %v", really.Round(time.Millisecond), g.Total.Round(time.Millisecond), peers.Quantile(timing.Gaps(), 1).Round(time.Millisecond))
	ratio := float64(g.Total) / float64(really)
	r.Judge(name+": gap ÷ stop", ratio, "ratio", 0.99, results.Higher, ratio >= 0.99 && ratio <= 1.02, 1, note)
	r.Add(name+": share of it in engine", float64(g.Stages[attribution.Engine])/float64(g.Total), "share", 0.99, results.Higher, 1, fmt.Sprintf("on port %d", rep.Ports[0].Port))
	found := 0.0
	for _, f := range rep.Findings {
		if f.ID == "engine_stall" {
			found = 1
		}
	}
	r.Add(name+": finding engine_stall", found, "findings", 1, results.Higher, 1, "")
	return nil
}

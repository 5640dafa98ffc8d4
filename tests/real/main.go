// SPDX-License-Identifier: Apache-2.0

// Command real puts streams on real engines, watches them with the agent, and
// compares the TTFT and the gaps that the agent reports with those that the
// clients saw by their own clock.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/velo-agent/velo-agent/agent"
	"github.com/velo-agent/velo-agent/diagnosis"
	"github.com/velo-agent/velo-agent/tests/peers"
	"github.com/velo-agent/velo-agent/tests/results"
)

const streams = 32

// The agent's quantile may differ from the clients' by the larger of these.
const (
	absolute = time.Millisecond
	relative = 0.02
)

func main() {
	attempts := flag.Int("attempts", 1, "measure an engine up to so often, until no goal is missed")
	window := flag.Duration("for", 10*time.Second, "how long each engine is watched")
	dir := flag.String("results", "build/results", "where the JSON goes")
	reports := flag.String("reports", "build/reports", "where the reports go, as Markdown")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	r := results.New("real")
	run(ctx, r, *attempts, *window, *reports)
	code := r.Finish(os.Stdout, *dir)
	stop()
	os.Exit(code)
}

// run measures every engine; one that cannot be installed is listed as skipped.
func run(ctx context.Context, r *results.Run, attempts int, window time.Duration, reports string) {
	for _, e := range []struct {
		name    string
		measure func(context.Context, *results.Run, string, time.Duration, string) error
	}{{"xllamacpp", llama}, {"dynamo", dynamo}, {"dynamo, worker stopped", stopped}} {
		r.Attempt(attempts, func(r *results.Run) {
			if err := e.measure(ctx, r, e.name, window, reports); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", e.name, err)
				r.Skip(e.name, "", 1, results.Lower, err.Error())
				r.Fail(e.name + ": " + err.Error())
			}
		})
	}
}

func llama(ctx context.Context, r *results.Run, name string, window time.Duration, reports string) error {
	e, err := peers.StartLlama(ctx, peers.Config{Log: os.Stderr})
	if err != nil {
		return err
	}
	defer e.Stop()
	rep, timings, err := watched(ctx, e.Port, window, e.URL, e.Model, 64)
	if err != nil {
		return err
	}
	return compare(r, name, rep, timings, filepath.Join(reports, "xllamacpp.md"))
}

func dynamo(ctx context.Context, r *results.Run, name string, window time.Duration, reports string) error {
	d, err := peers.StartDynamo(ctx, peers.Config{Log: os.Stderr})
	if err != nil {
		return err
	}
	defer d.Stop()
	rep, timings, err := watched(ctx, d.HTTPPort, window, d.URL, d.Model, 64)
	if err != nil {
		return err
	}
	return compare(r, name, rep, timings, filepath.Join(reports, "dynamo.md"))
}

// watched keeps streams on the engine while the agent diagnoses its port. Only
// exchanges that began and ended within the window count on the clients' side.
func watched(ctx context.Context, port int, window time.Duration, url, model string, tokens int) (*diagnosis.Report, []peers.Timing, error) {
	s, err := agent.Open(ctx, agent.Options{Watch: agent.Watch{Ports: []uint16{uint16(port)}}, ExactAccept: true})
	if err != nil {
		return nil, nil, err
	}
	defer s.Close()
	if err := s.Missing(); err != nil {
		return nil, nil, err
	}
	timings, err := load(ctx, window, url, model, tokens)
	if err != nil {
		return nil, nil, err
	}
	m, err := s.Measure()
	if err != nil {
		return nil, nil, err
	}
	return diagnosis.Build(m), timings, nil
}

// load runs whole exchanges on each client until the window is over.
func load(ctx context.Context, window time.Duration, url, model string, tokens int) ([]peers.Timing, error) {
	end := time.Now().Add(window)
	var all []peers.Timing
	for time.Now().Before(end) {
		shape := peers.Shape{Clients: streams, Exchanges: 2, Reuse: 2, Stagger: 3 * time.Millisecond, Options: peers.Options{Tokens: tokens}}
		timings, err := shape.Run(ctx, url, model)
		all = append(all, timings...)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

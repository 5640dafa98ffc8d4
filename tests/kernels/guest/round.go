// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/velo-agent/velo-agent/agent"
	"github.com/velo-agent/velo-agent/attribution"
)

// collected are the traces of a session.
type collected struct {
	mu     sync.Mutex
	traces []*attribution.Trace
}

func (c *collected) add(t *attribution.Trace) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.traces = append(c.traces, t)
}

// round runs the agent with the n-th rung that holds of each signal, and measures
// positions and injections under it.
func round(ctx context.Context, out *lines, ladders []tried, n, samples int) (err error) {
	name := func(what string) string { return what }
	if n > 0 {
		name = func(what string) string { return fmt.Sprintf("%s, rungs %d", what, n+1) }
	}
	server, err := startServer(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	f := &flows{}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := f.listenAll(ctx); err != nil {
		return err
	}
	if err := f.connect(ctx, "old"); err != nil {
		return err
	}
	if err := f.exchange(0, false); err != nil {
		return err
	}

	got := &collected{}
	rungs := only(ladders, n)
	session, err := agent.Open(ctx, agent.Options{
		Watch:       agent.Watch{Ports: slices.Concat(f.ports, server.ports), BothEnds: true},
		ExactAccept: true, TraceAll: true, NoSendStart: rungs[sendStart] == "", Only: rungs, OnTrace: got.add,
	})
	if err != nil {
		return fmt.Errorf("opening the session: %w", err)
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	if err := session.Missing(); err != nil {
		return err
	}

	if err := f.connect(ctx, "new"); err != nil {
		return err
	}
	for i := 1; i < len(sizes); i++ {
		if err := f.exchange(i, false); err != nil {
			return err
		}
	}
	listed, err := f.list()
	if err != nil {
		return fmt.Errorf("reading the kernel's list of sockets: %w", err)
	}
	if err := f.exchange(0, true); err != nil {
		return err
	}
	exchanges, err := server.drive(ctx, samples)
	if err != nil {
		return err
	}
	measured, err := session.Measure()
	if err != nil {
		return fmt.Errorf("measuring: %w", err)
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	for _, c := range measured.Coverage {
		if want := rungs[c.Signal]; c.Rung != want {
			return fmt.Errorf("%s is on the rung %q, not %q", c.Signal, c.Rung, want)
		}
	}
	listed.add(out, name("positions in the list of sockets"))
	f.traced(got.traces).add(out, name("positions of the steps"))
	for i := range injections {
		if rungs[sendStart] == "" && injections[i].stage == attribution.SendQueue {
			continue // that is what is lost without it
		}
		score(out, name(injections[i].name), &injections[i], rungs, exchanges[i], got.traces)
	}
	judgeLost(out, name("lost"), measured.Agent.Lost, rungs["read"] == lockedRead)
	return nil
}

// lockedRead is the rung of read that looks at a socket while it is locked. On the
// others a read may be seen beside an arrival, in either order, so that the two
// tiers need not agree on every trace; that is counted, and shown here.
const lockedRead = "tp_btf/tcp_rcv_space_adjust"

// judgeLost wants nothing lost.
func judgeLost(out *lines, name string, lost map[string]uint64, locked bool) {
	var all uint64
	var places []string
	for _, place := range slices.Sorted(maps.Keys(lost)) {
		if n := lost[place]; n > 0 {
			if locked || !strings.HasPrefix(place, "attribution/") {
				all += n
			}
			places = append(places, fmt.Sprintf("%s %d", place, n))
		}
	}
	out.none(name, all, "events", strings.Join(places, ", "))
}

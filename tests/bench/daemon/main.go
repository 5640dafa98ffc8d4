// SPDX-License-Identifier: Apache-2.0

// Daemon measures the real daemon at the size of a large node: 10,000 connections on
// 100 watched ports in 20 network namespaces, and thousands of ports that come and go
// (make daemon-scale).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/tests/bench"
	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
	"github.com/velo-agent/velo-agent/tests/results"
)

const (
	scrapeGoal = 50  // ms, p99
	memoryGoal = 80  // MiB
	idleGoal   = 0.3 // % of a core
	mib        = 1 << 20
)

// plan is how much of everything.
type plan struct {
	namespaces, ports, conns int // ports of each namespace, conns of each port
	scraping, idle           time.Duration
	short                    bool
	waves                    int
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == serverPart {
		live.Serve(new(server).answer)
		return
	}
	short := flag.Bool("short", false, "a minute and a half: less of what takes long, and times and memory are shown, not judged")
	only := flag.String("only", "", "`PART`s to measure, with commas: missed, scrape, idle, churn")
	flag.Parse()
	p := plan{namespaces: 20, ports: 5, conns: 100, scraping: 15 * time.Second, idle: 5 * time.Minute, waves: 20}
	if *short {
		p.scraping, p.idle, p.waves, p.short = 4*time.Second, 15*time.Second, 2, true
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	out := results.New("daemon-scale")
	if err := measure(ctx, out, p, *only); err != nil {
		out.Fail(err.Error())
	}
	stop()
	os.Exit(out.Finish(os.Stdout, "build/results"))
}

// judge adds a figure that a neighbour on the machine can spoil: the short form, which
// runs beside other work, shows it only.
func (p plan) judge(out *results.Run, name string, value float64, unit string, goal float64, samples int, note string) {
	if p.short {
		out.Skip(name, unit, goal, results.Lower, fmt.Sprintf("%.4g; %s; the short form does not judge it", value, note))
		return
	}
	out.Add(name, value, unit, goal, results.Lower, samples, note)
}

func measure(ctx context.Context, out *results.Run, p plan, only string) error {
	parts := []string{"missed", "scrape", "idle", "churn"}
	if only != "" {
		parts = strings.Split(only, ",")
	}
	wanted := func(part string) bool { return slices.Contains(parts, part) }
	if err := bench.RaiseFiles(uint64(2 * p.namespaces * p.ports * p.conns)); err != nil {
		return err
	}
	if wanted("missed") || wanted("scrape") || wanted("idle") {
		if err := many(ctx, out, p, wanted); err != nil {
			return err
		}
	}
	if wanted("churn") {
		return churn(ctx, out, p)
	}
	return nil
}

// many measures a daemon that has much to watch. Half of the connections are older
// than it.
func many(ctx context.Context, out *results.Run, p plan, wanted func(string) bool) (err error) {
	n := &node{plan: p}
	defer n.close()
	if err := n.start(); err != nil {
		return err
	}
	if err := n.dial(p.conns / 2); err != nil {
		return err
	}
	d, err := live.Start(ctx, fmt.Sprintf("  engines: false\n  ports: %s\n", n.portList()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	if err := n.dial(p.conns - p.conns/2); err != nil {
		return err
	}
	asked, err := n.talk()
	if err != nil {
		return err
	}
	if wanted("missed") {
		if err := missed(ctx, out, n, d, asked); err != nil {
			return err
		}
	}
	m := &memory{daemon: d}
	if wanted("scrape") {
		if err := scrapes(ctx, out, d, p, m); err != nil {
			return err
		}
	}
	if wanted("idle") {
		if err := idle(ctx, out, d, p, m); err != nil {
			return err
		}
	}
	return m.judge(ctx, out, p)
}

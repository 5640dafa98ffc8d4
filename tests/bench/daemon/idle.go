// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
	"github.com/velo-agent/velo-agent/tests/results"
)

const scrapeInterval = 15 * time.Second // Prometheus's usual one

// idle measures the CPU time of both processes while nothing happens.
func idle(ctx context.Context, out *results.Run, d *live.Daemon, p plan, m *memory) error {
	for _, how := range []struct {
		name     string
		scraping bool
	}{{"not scraped", false}, {fmt.Sprintf("scraped every %v", scrapeInterval), true}} {
		fmt.Printf("idle for %v, %s\n", p.idle, how.name)
		before, err := d.CPU()
		if err != nil {
			return err
		}
		begun, n := time.Now(), 0
		for time.Since(begun) < p.idle {
			if how.scraping {
				n++
				if _, err := d.Scrape(ctx, live.Text); err != nil {
					return err
				}
			}
			left := p.idle - time.Since(begun)
			if !pauseFor(ctx, min(left, scrapeInterval)) {
				return ctx.Err()
			}
		}
		after, err := d.CPU()
		if err != nil {
			return err
		}
		took := time.Since(begun)
		percent := func(t time.Duration) float64 { return 100 * t.Seconds() / took.Seconds() }
		used := after.Sub(before)
		note := fmt.Sprintf("over %v: daemon %.2f, helper %.2f", took.Round(time.Second), percent(used.Daemon), percent(used.Helper))
		if how.scraping { // not idle: what a page of this size costs besides
			out.Skip("CPU, "+how.name, "% of a core", 0, results.Lower, fmt.Sprintf("%.3g; %s; shown", percent(used.Sum()), note))
		} else {
			p.judge(out, "CPU idle", percent(used.Sum()), "% of a core", idleGoal, max(n, 1), note)
		}
		if err := m.sample(); err != nil {
			return err
		}
	}
	return nil
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
	"github.com/velo-agent/velo-agent/tests/results"
)

// count adds up the exchanges that the daemon counts. A port that was given up begins
// at zero again, as counters do for everyone who scrapes.
type count struct {
	daemon *live.Daemon

	mu    sync.Mutex
	last  map[string]float64 // by port
	sum   float64
	given int       // how often a port was given up
	page  live.Page // the newest
}

func (c *count) look(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	page, err := c.daemon.Page(ctx)
	if err == nil {
		c.add(page)
	}
	return err
}

func (c *count) add(page live.Page) {
	now := map[string]float64{}
	page.Each("velo_agent_exchanges_total", func(labels map[string]string, v float64) { now[labels["port"]] += v })
	for port, v := range c.last {
		if again, there := now[port]; !there || again < v {
			c.given++
			delete(c.last, port)
		}
	}
	for port, v := range now {
		c.sum += v - c.last[port]
		c.last[port] = v
	}
	c.page = page
}

// finish looks once more when nothing moves: a reading may be a second old.
func (c *count) finish(ctx context.Context) error {
	time.Sleep(1100 * time.Millisecond)
	return c.look(ctx)
}

// judge holds the exchanges to what the clients made. Those that were cut off, and
// those on connections to a listener that the daemon may not have known yet, may have
// been counted or not.
func (c *count) judge(out *results.Run, engines []*engine) {
	var t tally
	lives := 0
	for _, e := range engines {
		t.whole += e.whole
		t.early += e.early
		t.cut += e.cut
		t.broken += e.broken
		lives += e.lives
		if e.why != nil {
			t.why = e.why
		}
	}
	least, most := float64(t.whole-t.early), float64(t.whole+t.cut)
	beyond := max(0, least-c.sum, c.sum-most)
	note := fmt.Sprintf("%.0f counted; %d came to their end, %d of them on connections to a listener younger than %v; %d cut off by %d restarts; ports were given up %d times",
		c.sum, t.whole, t.early, newFor, t.cut, lives-len(engines), c.given)
	out.Add("exchanges beyond the bounds", beyond, "exchanges", 0, results.Lower, t.whole, note)
	fmt.Printf("between %.0f and %.0f of %d whole exchanges were not counted, on connections to a listener that the daemon did not know yet: %.0f a restart\n",
		max(0, float64(t.whole)-c.sum), most-c.sum, t.whole, (most-c.sum)/float64(max(1, lives)))
	why := ""
	if t.why != nil {
		why = t.why.Error()
	}
	out.Add("exchanges that failed otherwise", float64(t.broken), "exchanges", 0, results.Lower, t.whole, why)
	c.lost(out)
}

func (c *count) lost(out *results.Run) {
	var names []string
	sum := 0.0
	c.page.Each("velo_agent_lost_total", func(labels map[string]string, v float64) {
		if v > 0 {
			names = append(names, fmt.Sprintf("%s/%s %.0f", labels["place"], labels["reason"], v))
		}
		sum += v
	})
	slices.Sort(names)
	out.Add("events lost", sum, "events", 0, results.Lower, int(c.sum), strings.Join(names, ", "))
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/collectors"
	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
	"github.com/velo-agent/velo-agent/tests/results"
)

const (
	wavePorts    = 250
	waveBase     = 10_000           // the first port; every wave has others
	wavePatience = 60 * time.Second // until the daemon has seen a wave
	flatBy       = 1.10
	flatSlack    = 4 * mib // the collector of the heap does not come on time
)

// churn opens and closes ports in waves, more at once than are told apart, in a cgroup
// that a daemon of its own watches.
func churn(ctx context.Context, out *results.Run, p plan) (err error) {
	waves := p.waves
	c, err := live.StartChild(true, serverPart)
	if err != nil {
		return err
	}
	defer c.Stop()
	group, remove, err := c.Cgroup()
	if err != nil {
		out.Skip("ports that come and go", "", 0, results.Lower, err.Error())
		return nil
	}
	defer func() {
		c.Stop()
		err = errors.Join(err, remove())
	}()
	d, err := live.Start(ctx, "  engines: false\n  cgroups: ["+group+"]\n")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	w := &waving{daemon: d, server: c, beyond: map[string]string{}}
	begun := time.Now()
	for i := range waves {
		if err := w.wave(ctx, i); err != nil {
			return fmt.Errorf("wave %d: %w; the daemon said: %s", i+1, err, d.Log())
		}
	}
	fmt.Printf("%d ports came and went in %v; at most %d label sets, %d series in classic form\n",
		waves*wavePorts, time.Since(begun).Round(time.Second), w.sets, w.series)
	return w.judge(ctx, out, p)
}

type waving struct {
	daemon       *live.Daemon
	server       *live.Child
	sets, series int
	folded       float64           // ports, so far
	beyond       map[string]string // families that went beyond their budgets
	memory       []float64         // after each wave
}

// wave opens ports, waits until the daemon knows them, lets each answer once, looks at
// the page, closes them, and waits until the daemon has given them up.
func (w *waving) wave(ctx context.Context, i int) error {
	if _, err := w.server.Ask("listen", waveBase+i*wavePorts, wavePorts); err != nil {
		return err
	}
	w.folded += wavePorts - (bpf.MaxPorts - 1)
	if _, err := w.await(ctx, func(p live.Page) bool { return p.Sum("velo_agent_folded_ports_total") >= w.folded }); err != nil {
		return err
	}
	if _, err := w.server.Ask("talk"); err != nil {
		return err
	}
	page, err := w.await(ctx, func(p live.Page) bool { return p.Sum("velo_agent_exchanges_total", "port", "other") > 0 })
	if err != nil {
		return err
	}
	w.look(page)
	if _, err := w.server.Ask("close"); err != nil {
		return err
	}
	page, err = w.await(ctx, func(p live.Page) bool { return p.Sum("velo_agent_watched_ports") <= 1 })
	if err != nil {
		return err
	}
	m, err := w.daemon.Memory()
	w.memory = append(w.memory, float64(m.PSS())+page.Sum("velo_agent_memory_bytes", "part", "kernel_maps"))
	return err
}

// await asks for pages until one shows what is waited for.
func (w *waving) await(ctx context.Context, shows func(live.Page) bool) (live.Page, error) {
	end := time.Now().Add(wavePatience)
	for {
		page, err := w.daemon.Page(ctx)
		if err != nil {
			return nil, err
		}
		if shows(page) {
			return page, nil
		}
		if time.Now().After(end) {
			return nil, fmt.Errorf("after %v the daemon watches %.0f ports and has folded %.0f, of which %.0f are awaited", wavePatience,
				page.Sum("velo_agent_watched_ports"), page.Sum("velo_agent_folded_ports_total"), w.folded)
		}
		if !pauseFor(ctx, 250*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

// look holds every family to its budget.
func (w *waving) look(page live.Page) {
	for _, f := range collectors.Table {
		if n := len(page[f.Name].GetMetric()); n > f.Budget {
			w.beyond[f.Name] = fmt.Sprintf("%s %d of %d", f.Name, n, f.Budget)
		}
	}
	sets, series := page.Sets()
	w.sets, w.series = max(w.sets, sets), max(w.series, series)
}

func (w *waving) judge(ctx context.Context, out *results.Run, p plan) error {
	waves := p.waves
	var beyond []string
	for _, s := range w.beyond {
		beyond = append(beyond, s)
	}
	slices.Sort(beyond)
	ports := fmt.Sprintf("of %d ports, %d at once", waves*wavePorts, wavePorts)
	out.Add("families beyond their budgets", float64(len(beyond)), "families", 0, results.Lower, waves, strings.Join(beyond, ", "))
	page, err := w.daemon.Page(ctx)
	if err != nil {
		return err
	}
	got := page.Sum("velo_agent_folded_ports_total")
	out.Judge("ports folded", got, "ports", w.folded, results.Higher, got == w.folded, waves, ports+"; exactly; "+lost(page))
	if p.short {
		return nil // memory takes more waves to tell
	}
	// What the last minute's windows hold comes in the first waves.
	first, last := mean(w.memory[waves/4:waves/2]), mean(w.memory[waves-waves/4:])
	note := fmt.Sprintf("%.1f MiB in the second quarter of the waves, %.1f in the last", first/mib, last/mib)
	out.Judge("memory after the waves", last/first, "of before", flatBy, results.Lower, last <= first*flatBy+flatSlack, waves, note)
	return nil
}

func mean(list []float64) (sum float64) {
	for _, v := range list {
		sum += v
	}
	return sum / float64(len(list))
}

// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/velo-agent/velo-agent/tests/bench/daemon/live"
	"github.com/velo-agent/velo-agent/tests/results"
)

const (
	flatBy = 1.10
	mib    = 1 << 20
)

// measures are what must stay flat: the mean at the end may be a tenth above that at
// the beginning, and so much besides.
var measures = []struct {
	name, unit string
	slack      float64
	read       func(*reading) float64
}{
	{"memory of daemon and helper (PSS)", "MiB", 3, func(r *reading) float64 { return float64(r.memory.PSS()) / mib }},
	{"daemon's heap in use", "MiB", 2, func(r *reading) float64 { return r.page.Sum("go_memstats_heap_inuse_bytes") / mib }},
	{"kernel maps", "MiB", 0.5, func(r *reading) float64 {
		return r.page.Sum("velo_agent_memory_bytes", "part", "kernel_maps") / mib
	}},
	{"daemon's descriptors", "", 2, func(r *reading) float64 { return float64(r.daemonFiles) }},
	{"helper's descriptors", "", 2, func(r *reading) float64 { return float64(r.helperFiles) }},
	{"daemon's goroutines", "", 3, func(r *reading) float64 { return r.page.Sum("go_goroutines") }},
	{"map entries: ports", "entries", 1, entries("ports", "ports_beyond")},
	{"map entries: roles", "entries", 2, entries("roles")},
	{"map entries: accepting", "entries", 4, entries("accepting")},
	// Those of the present window, which ends every 10 s.
	{"map entries: streams", "entries", 300, entries("streams")},
	// One port's come and go with the engine.
	{"series", "series", 300, func(r *reading) float64 { _, n := r.page.Sets(); return float64(n) }},
}

func entries(maps ...string) func(*reading) float64 {
	return func(r *reading) (sum float64) {
		for _, m := range maps {
			sum += r.page.Sum("velo_agent_map_entries", "map", m)
		}
		return sum
	}
}

// reading is one sample of everything.
type reading struct {
	page                     live.Page
	memory                   live.Memory
	daemonFiles, helperFiles int
}

// series keeps the samples of the two spans.
type series struct {
	daemon *live.Daemon
	plan
	first, last [][]float64 // a row each time, a column for each measure
}

func (s *series) sample(ctx context.Context) error {
	begun := time.Now()
	for sleep(ctx, s.every) {
		r, err := s.read(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		row := make([]float64, len(measures))
		for i := range measures {
			row[i] = measures[i].read(r)
		}
		at := time.Since(begun)
		if at >= s.warmUp && at < s.warmUp+s.span {
			s.first = append(s.first, row)
		}
		if at >= s.length-s.span {
			s.last = append(s.last, row)
		}
	}
	return nil
}

func (s *series) read(ctx context.Context) (r *reading, err error) {
	r = &reading{}
	if r.page, err = s.daemon.Page(ctx); err != nil {
		return nil, err
	}
	if r.memory, err = s.daemon.Memory(); err != nil {
		return nil, err
	}
	r.daemonFiles, r.helperFiles, err = s.daemon.Descriptors()
	return r, err
}

// judge prints the means side by side.
func (s *series) judge(out *results.Run) {
	fmt.Printf("means over %v, the first after a warm-up of %v, and the last\n", s.span, s.warmUp)
	tw := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "first\tlast\t  ")
	for i, m := range measures {
		first, last := mean(s.first, i), mean(s.last, i)
		fmt.Fprintf(tw, "%.2f\t%.2f\t  %s\n", first, last, m.name)
		goal := first*flatBy + m.slack
		out.Add(m.name, last, m.unit, goal, results.Lower, len(s.last), fmt.Sprintf("%.4g in the first %v", first, s.span))
	}
	tw.Flush()
}

func mean(rows [][]float64, column int) (sum float64) {
	for _, r := range rows {
		sum += r[column]
	}
	return sum / float64(len(rows))
}

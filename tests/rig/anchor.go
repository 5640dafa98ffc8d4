// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/velo-agent/velo-agent/tests/results"
	"github.com/velo-agent/velo-agent/tests/rig/side"
)

const (
	inFlight   = 64      // streams at a time, of life cycles between two processes
	keep       = 200_000 // anchors at rest
	fewRecords = 4
	idlePace   = 20_000 // streams a second
	anchorTime = 5 * time.Minute
	mib        = 1 << 20
)

// anchorPlan is how much of everything.
type anchorPlan struct{ cycles, local, idle int }

// anchors measures what it takes to begin and end streams, and to keep them.
func (r *rig) anchors(ctx context.Context, arms []arm, short bool) error {
	p := anchorPlan{cycles: 200_000, local: 1_000_000, idle: 20_000}
	if short {
		p = anchorPlan{cycles: 20_000, local: 100_000, idle: 8192}
	}
	arms = slices.DeleteFunc(slices.Clone(arms), func(a arm) bool { return a.carrier != velo && a.carrier != push.carrier })
	for _, threads := range []int{1, 2} {
		if err := r.cycles(ctx, arms, threads, 1, p.cycles); err != nil {
			return err
		}
	}
	if err := r.cycles(ctx, arms, 2, fewRecords, p.cycles); err != nil {
		return err
	}
	if err := r.idle(ctx, arms, p.idle); err != nil {
		return err
	}
	var alone []arm // by themselves the two interfaces are one
	for _, a := range arms {
		if a.face = ""; !slices.Contains(alone, a) {
			alone = append(alone, a)
		}
	}
	for _, threads := range []int{1, 2} {
		if err := r.localCycles(ctx, alone, threads, p.local); err != nil {
			return err
		}
	}
	for _, kind := range []string{"unattached", "prebound"} {
		if err := r.atRest(ctx, alone, kind, keep); err != nil {
			return err
		}
	}
	return nil
}

var cycleColumns = []column{
	{"life cycles/s", cycleRate, "%.3g", true},
	{"CPU µs", cycleCPU, "%.3g", true},
	{"consumer", cpuConsumer, "%.3g", false},
	{"producer", cpuProducer, "%.3g", false},
	{"p50 µs", cycleP50, "%.3g", false},
	{"p99 µs", cycleP99, "%.3g", false},
	{"p99.9 µs", cycleP999, "%.3g", true},
}

// show prints a table and keeps its figures.
func (r *rig) show(t *table, columns []column) {
	t.print(os.Stdout, columns, func(arm) string { return "" })
	t.judgeFaults(r.out)
	r.figures = append(r.figures, t.figures()...)
}

// cycles measures streams of few records between two processes: an anchor, a ticket, a
// request, the stream, its records and its end.
func (r *rig) cycles(ctx context.Context, arms []arm, threads, records, n int) error {
	name := fmt.Sprintf("life cycles over TCP, %d threads each", threads)
	if records > 1 {
		name = fmt.Sprintf("streams of %d records over TCP, %d threads each", records, threads)
	}
	t, err := r.interleave(ctx, name, arms, func(a arm) (f figures, err error) {
		spec := a.spec(testCase{streams: n, records: records})
		spec.InFlight = inFlight
		err = r.withPair(ctx, a, threads, anchorTime, func(p *pair) error {
			if _, _, err := p.connect(spec); err != nil {
				return err
			}
			c, q, err := p.each("rest")
			if err != nil {
				return err
			}
			done, err := p.consumer.call(simple("cycles"))
			if err != nil {
				return err
			}
			handed, err := p.producer.call(simple("done"))
			if err != nil {
				return err
			}
			f = cycleFigures(c, done, n)
			f[cpuConsumer], f[cpuProducer] = f[cycleCPU], cpuOf(q, handed)/float64(n)
			f[cycleCPU] += f[cpuProducer]
			return nil
		})
		return f, err
	})
	if err != nil {
		return err
	}
	r.show(t, cycleColumns)
	for _, a := range t.arms {
		if records == 1 && a.carrier == push.carrier {
			t.judgeRatio(r.out, a, arm{carrier: velo}, cycleCPU, 0.5*r.slack, results.Lower, r.absent[velo])
		}
	}
	return nil
}

// cpuOf is the CPU time between two answers, in µs.
func cpuOf(from, to side.Answer) float64 {
	return float64(to.Usage.Begin.CPU-from.Usage.End.CPU) / 1e3
}

func cycleFigures(before, done side.Answer, n int) figures {
	l := done.Latency
	return figures{
		cycleRate: float64(n) / (float64(done.EndedNS-done.BegunNS) / 1e9),
		cycleCPU:  cpuOf(before, done) / float64(n),
		cycleP50:  float64(l.P50) / 1e3, cycleP99: float64(l.P99) / 1e3, cycleP999: float64(l.P999) / 1e3,
	}
}

// idle measures streams that rest after their first record, at both ends.
func (r *rig) idle(ctx context.Context, arms []arm, n int) error {
	t, err := r.interleave(ctx, fmt.Sprintf("%d idle streams", n), arms, func(a arm) (f figures, err error) {
		spec := a.spec(testCase{streams: n, records: 2})
		spec.SetupRate = idlePace
		err = r.withPair(ctx, a, 0, anchorTime, func(p *pair) error {
			if _, _, err := p.connect(spec); err != nil {
				return err
			}
			c, q, err := p.each("rest")
			if err != nil {
				return err
			}
			if _, err := p.consumer.call(simple("setup")); err != nil {
				return err
			}
			if _, err := p.producer.call(simple("mark")); err != nil {
				return err
			}
			c2, q2, err := p.each("rest")
			if err != nil {
				return err
			}
			per := func(from, to side.Answer) float64 { return float64(to.Usage.RSS-from.Usage.RSS) / 1024 / float64(n) }
			f = figures{memConsumer: per(c, c2), memProducer: per(q, q2), memory: per(c, c2) + per(q, q2)}
			return nil
		})
		return f, err
	})
	if err != nil {
		return err
	}
	r.show(t, []column{
		{"KiB/stream", memory, "%.3g", true}, {"consumer", memConsumer, "%.3g", false}, {"producer", memProducer, "%.3g", false},
	})
	if slices.Contains(arms, push) {
		t.judge(r.out, push, memory, 2*r.slack, results.Lower, "")
	}
	return nil
}

// withLocal starts a node by itself for use, and ends it.
func (r *rig) withLocal(ctx context.Context, a arm, threads, n int, use func(*child) error) error {
	program, err := r.program(a)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, anchorTime, fmt.Errorf("it took longer than %v", anchorTime))
	defer cancel()
	c, err := startChild(ctx, program, side.Local, threads)
	if err != nil {
		return err
	}
	spec := a.spec(testCase{streams: n, records: 1})
	spec.Tasks = max(1, threads)
	if _, err = c.call(side.Command{Cmd: "prepare", Spec: spec}); err == nil {
		err = use(c)
	}
	if text := c.stop(); err != nil && text != "" {
		err = fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// localCycles measures streams that never leave their node.
func (r *rig) localCycles(ctx context.Context, arms []arm, threads, n int) error {
	t, err := r.interleave(ctx, fmt.Sprintf("life cycles on one node, %d threads", threads), arms, func(a arm) (f figures, err error) {
		err = r.withLocal(ctx, a, threads, n, func(c *child) error {
			before, err := c.call(simple("mark"))
			if err != nil {
				return err
			}
			done, err := c.call(simple("cycles"))
			if err != nil {
				return err
			}
			f = cycleFigures(before, done, n)
			return nil
		})
		return f, err
	})
	if err != nil {
		return err
	}
	r.show(t, slices.DeleteFunc(slices.Clone(cycleColumns), func(c column) bool { return c.figure == cpuConsumer || c.figure == cpuProducer }))
	for _, a := range t.arms {
		if a.carrier == push.carrier {
			t.judgeRatio(r.out, a, arm{carrier: velo}, cycleRate, 1.5/r.slack, results.Higher, r.absent[velo])
			t.judgeRatio(r.out, a, arm{carrier: velo}, cycleP999, r.slack, results.Lower, r.absent[velo])
		}
	}
	return nil
}

// atRest measures anchors that nobody has come to.
func (r *rig) atRest(ctx context.Context, arms []arm, kind string, n int) error {
	t, err := r.interleave(ctx, fmt.Sprintf("%d %s anchors", n, kind), arms, func(a arm) (f figures, err error) {
		err = r.withLocal(ctx, a, 0, n, func(c *child) error {
			before, err := c.call(simple("rest"))
			if err != nil {
				return err
			}
			after, err := c.call(simple(kind))
			if err != nil {
				return err
			}
			added := float64(after.Usage.RSS - before.Usage.RSS)
			f = figures{
				anchorEa: added / float64(n), anchorAll: added / mib, anchorTop: float64(after.Usage.Peak-before.Usage.RSS) / mib,
				tasks: float64(after.Tasks - before.Tasks),
			}
			return nil
		})
		return f, err
	})
	if err != nil {
		return err
	}
	r.show(t, []column{
		{"bytes each", anchorEa, "%.4g", true}, {"MiB", anchorAll, "%.3g", false}, {"at most MiB", anchorTop, "%.3g", false}, {"goroutines or tasks", tasks, "%.0f", false},
	})
	for _, a := range t.arms {
		switch {
		case a.carrier != push.carrier:
		case kind == "prebound":
			t.judge(r.out, a, anchorEa, 1024*r.slack, results.Lower, "")
			t.judge(r.out, a, tasks, 0, results.Lower, "")
		default:
			t.judge(r.out, a, anchorAll, 60*r.slack, results.Lower, "")
			t.judge(r.out, a, tasks, 1, results.Lower, "")
		}
	}
	return nil
}

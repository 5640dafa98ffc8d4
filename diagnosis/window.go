// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"maps"
	"slices"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

// Since returns the window between two readings of the same probes, earlier and m:
// counters become what was added, gauges stay as they are in m. A port, thread role
// or counter that is not in earlier, or began anew since, counts in whole.
func (m *Measured) Since(earlier *Measured) *Measured {
	d := *m
	d.Window = max(m.Window-earlier.Window, 0)
	if d.Window == 0 || m.Window < earlier.Window {
		d.Window = m.Window
	}
	d.Ports = make([]Port, 0, len(m.Ports))
	for i := range m.Ports {
		p := &m.Ports[i]
		if before := earlier.Find(p, i); before != nil {
			p = p.since(before)
		}
		d.Ports = append(d.Ports, *p)
	}
	d.Agent = m.Agent.since(&earlier.Agent)
	return &d
}

// Add returns m and the window after it, next, as one. Gauges are those of next,
// high-water marks the higher.
func (m *Measured) Add(next *Measured) *Measured {
	d := *next
	d.Window = m.Window + next.Window
	d.Ports = slices.Clone(next.Ports)
	for i := range m.Ports {
		p := &m.Ports[i]
		if same := d.Find(p, i); same != nil {
			*same = *p.add(same)
		} else {
			d.Ports = append(d.Ports, *p)
		}
	}
	d.Streams = worstOf(m.Streams, next.Streams)
	d.Agent = m.Agent.add(&next.Agent)
	return &d
}

// streamsInReport is how many of the slowest streams a window keeps.
const streamsInReport = 5

func worstOf(a, b []Stream) []Stream {
	if a == nil && b == nil {
		return nil
	}
	all := []Stream{}
	for _, s := range slices.Concat(a, b) {
		i := slices.IndexFunc(all, func(x Stream) bool { return x.ID == s.ID && x.Port == s.Port && x.NetNS == s.NetNS })
		if i < 0 {
			all = append(all, s)
			continue
		}
		if s.TTFT > 0 {
			all[i].TTFT, all[i].TTFTStages = s.TTFT, s.TTFTStages
		}
		if s.WorstGap > all[i].WorstGap {
			all[i].WorstGap, all[i].GapStages = s.WorstGap, s.GapStages
		}
	}
	slices.SortStableFunc(all, func(x, y Stream) int { return int(max(y.TTFT, y.WorstGap) - max(x.TTFT, x.WorstGap)) })
	return all[:min(len(all), streamsInReport)]
}

// Find returns the port of m that p names, which is likely at place i, or nil.
func (m *Measured) Find(p *Port, i int) *Port {
	if i < len(m.Ports) && m.Ports[i].same(p) {
		return &m.Ports[i]
	}
	for j := range m.Ports {
		if m.Ports[j].same(p) {
			return &m.Ports[j]
		}
	}
	return nil
}

func (p *Port) same(o *Port) bool { return p.Port == o.Port && p.NetNS == o.NetNS }

// combine is how the two readings of a figure become one.
type combine struct {
	count     func(a, b *uint64) *uint64
	duration  func(a, b *time.Duration) *time.Duration
	histogram func(a, b *attribution.Histogram) *attribution.Histogram
}

// counter is any figure that only grows.
type counter interface{ ~uint64 | ~int64 }

func difference[T counter](now, before *T) *T {
	if now == nil || before == nil || *now < *before {
		return now
	}
	return new(*now - *before)
}

func sum[T counter](a, b *T) *T {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	return new(*a + *b)
}

var differences = combine{difference[uint64], difference[time.Duration], func(now, before *attribution.Histogram) *attribution.Histogram {
	switch {
	case now == nil || before == nil:
		return now
	case now == before: // of a port at rest
		return &attribution.Histogram{}
	}
	return now.Since(before)
}}

var sums = combine{sum[uint64], sum[time.Duration], func(a, b *attribution.Histogram) *attribution.Histogram {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	var h attribution.Histogram
	h.Merge(a)
	h.Merge(b)
	return &h
}}

func (p *Port) since(before *Port) *Port { return p.combined(before, &differences) }

// add returns p and the window after it as one.
func (p *Port) add(next *Port) *Port {
	d := next.combined(p, &sums)
	if d.Accept != nil && p.Accept != nil {
		d.Accept.HighWater = higher(p.Accept.HighWater, next.Accept.HighWater)
	}
	return d
}

func higher(a, b *uint64) *uint64 {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// combined is p with each of its counters combined with o's.
func (p *Port) combined(o *Port, by *combine) *Port {
	d := *p
	d.Connections = by.count(p.Connections, o.Connections)
	d.Exchanges = by.count(p.Exchanges, o.Exchanges)
	d.TTFT = by.histogram(p.TTFT, o.TTFT)
	d.FirstWrite = by.histogram(p.FirstWrite, o.FirstWrite)
	d.Gap = by.histogram(p.Gap, o.Gap)
	for s := range p.Stages {
		d.Stages[s].TTFT = by.histogram(p.Stages[s].TTFT, o.Stages[s].TTFT)
		d.Stages[s].Gap = by.histogram(p.Stages[s].Gap, o.Stages[s].Gap)
		d.Stages[s].TTFTMissed = *by.count(&p.Stages[s].TTFTMissed, &o.Stages[s].TTFTMissed)
		d.Stages[s].GapMissed = *by.count(&p.Stages[s].GapMissed, &o.Stages[s].GapMissed)
	}
	if p.Accept != nil && o.Accept != nil {
		a := *p.Accept
		a.Arrivals = by.count(p.Accept.Arrivals, o.Accept.Arrivals)
		a.Overflows = by.count(p.Accept.Overflows, o.Accept.Overflows)
		a.EMFILE = by.count(p.Accept.EMFILE, o.Accept.EMFILE)
		a.Wait = by.histogram(p.Accept.Wait, o.Accept.Wait)
		d.Accept = &a
	}
	d.Loss = p.Loss.combined(&o.Loss, by)
	d.Sched = nil
	for i := range p.Sched {
		r := p.Sched[i]
		if j := slices.IndexFunc(o.Sched, func(x Role) bool { return x.Name == r.Name }); j >= 0 {
			r = r.combined(&o.Sched[j], by)
		}
		d.Sched = append(d.Sched, r)
	}
	return &d
}

func (l *Loss) combined(o *Loss, by *combine) Loss {
	return Loss{
		Retransmits:    by.count(l.Retransmits, o.Retransmits),
		ResetsSent:     by.count(l.ResetsSent, o.ResetsSent),
		ResetsReceived: by.count(l.ResetsReceived, o.ResetsReceived),
		ZeroWindows:    by.count(l.ZeroWindows, o.ZeroWindows),
		NagleWrites:    by.count(l.NagleWrites, o.NagleWrites),

		RwndLimited:   by.duration(l.RwndLimited, o.RwndLimited),
		SndbufLimited: by.duration(l.SndbufLimited, o.SndbufLimited),

		NodeListenOverflows: by.count(l.NodeListenOverflows, o.NodeListenOverflows),
		NodeListenDrops:     by.count(l.NodeListenDrops, o.NodeListenDrops),
		NodeUDPRcvbufErrors: by.count(l.NodeUDPRcvbufErrors, o.NodeUDPRcvbufErrors),
	}
}

func (r *Role) combined(o *Role, by *combine) Role {
	d := *r
	d.Wakeups = by.count(r.Wakeups, o.Wakeups)
	d.Wait = by.histogram(r.Wait, o.Wait)
	d.OnCPU = by.duration(r.OnCPU, o.OnCPU)
	d.RunDelay = by.duration(r.RunDelay, o.RunDelay)
	d.Preempted = by.count(r.Preempted, o.Preempted)
	if r.Throttled != nil && o.Throttled != nil {
		t := *r.Throttled
		t.Periods = *by.count(&r.Throttled.Periods, &o.Throttled.Periods)
		t.ThrottledPeriods = *by.count(&r.Throttled.ThrottledPeriods, &o.Throttled.ThrottledPeriods)
		t.Time = *by.duration(&r.Throttled.Time, &o.Throttled.Time)
		d.Throttled = &t
	}
	return d
}

func (a *AgentCost) since(before *AgentCost) AgentCost {
	d := *a
	d.CPU = *difference(&a.CPU, &before.CPU)
	d.Lost = map[string]uint64{}
	for name, n := range a.Lost {
		was := before.Lost[name]
		if d.Lost[name] = n - was; n < was {
			d.Lost[name] = n
		}
	}
	d.Programs = nil // runs are counted now and then: none in this window is not none
	for _, p := range a.Programs {
		if j := slices.IndexFunc(before.Programs, func(x ProgramCost) bool { return x.Name == p.Name }); j >= 0 {
			p.Runs = *difference(&p.Runs, &before.Programs[j].Runs)
		}
		if p.Runs > 0 {
			d.Programs = append(d.Programs, p)
		}
	}
	return d
}

func (a *AgentCost) add(next *AgentCost) AgentCost {
	d := *next
	d.CPU += a.CPU
	d.Lost = maps.Clone(a.Lost)
	if d.Lost == nil {
		d.Lost = map[string]uint64{}
	}
	for name, n := range next.Lost {
		d.Lost[name] += n
	}
	d.Programs = slices.Clone(next.Programs)
	for _, p := range a.Programs {
		if j := slices.IndexFunc(d.Programs, func(x ProgramCost) bool { return x.Name == p.Name }); j >= 0 {
			d.Programs[j].Runs += p.Runs
		} else {
			d.Programs = append(d.Programs, p)
		}
	}
	return d
}

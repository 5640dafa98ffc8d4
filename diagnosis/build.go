// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

// Build makes the report: quantiles and shares, the findings, the verdict.
func Build(m *Measured) *Report {
	r := &Report{
		Schema:        Schema,
		WindowS:       m.Window.Seconds(),
		Node:          m.Node,
		Ports:         []PortReport{},
		Preconditions: m.Preconditions,
		Coverage:      append([]Coverage{}, m.Coverage...),
		Agent:         agentReport(&m.Agent),
	}
	views := make([]*view, len(m.Ports))
	for i := range m.Ports {
		views[i] = newView(m, &m.Ports[i])
		r.Ports = append(r.Ports, portReport(views[i]))
	}
	if m.Streams != nil {
		r.Streams = []StreamReport{}
	}
	for i := range m.Streams {
		r.Streams = append(r.Streams, streamReport(&m.Streams[i]))
	}
	r.Findings = findings(m, views)
	r.Verdict = verdict(m, views, r.Findings)
	return cleaned(r)
}

func portReport(v *view) PortReport {
	p := v.p
	r := PortReport{
		Port: p.Port, Addresses: append([]string{}, p.Addresses...),
		Process: p.Process, Engine: p.Engine, PID: p.PID, Cgroup: p.Cgroup, NetNS: p.NetNS, MPTCP: p.MPTCP,
		Connections: p.Connections, Exchanges: p.Exchanges,
		TTFT: distribution(p.TTFT), FirstWrite: distribution(p.FirstWrite), Gap: distribution(p.Gap),
		Stages: stageReports(v),
		Accept: acceptReport(p.Accept), Loss: lossReport(&p.Loss),
	}
	if p.Exchanges != nil {
		r.ExchangesAre = "inferred"
	}
	for i := range p.Sched {
		r.Sched = append(r.Sched, roleReport(&p.Sched[i]))
	}
	return r
}

func stageReports(v *view) map[string]StageReport {
	stages := map[string]StageReport{}
	for s := range attribution.NumStages {
		if st := (StageReport{TTFT: stageShare(&v.ttft, s), Gap: stageShare(&v.gap, s)}); st != (StageReport{}) {
			stages[s.String()] = st
		}
	}
	return stages
}

func stageShare(p *partition, s attribution.Stage) *StageShare {
	if !p.has(s) {
		return nil
	}
	sh := &StageShare{Sum: p.sum[s].Seconds(), Share: p.share[s]}
	if h := p.stage[s]; h != nil {
		sh.Count = h.Count()
	}
	if d, ok := p.quantile(s, 0.5); ok {
		sh.P50 = new(d.Seconds())
	}
	if d, ok := p.quantile(s, 0.99); ok {
		sh.P99 = new(d.Seconds())
	}
	return sh
}

// distribution is nil where nothing was sampled: an empty one has no quantiles.
func distribution(h *attribution.Histogram) *Distribution {
	if h == nil || h.Count() == 0 {
		return nil
	}
	d := &Distribution{
		Count: h.Count(), Sum: h.Sum().Seconds(),
		P50: quantile(h, 0.5).Seconds(), P90: quantile(h, 0.9).Seconds(), P99: quantile(h, 0.99).Seconds(),
	}
	if h.Sum() > 0 {
		d.Max = h.Max().Seconds()
	}
	return d
}

func acceptReport(a *Accept) *AcceptReport {
	if a == nil {
		return nil
	}
	r := &AcceptReport{
		Depth: a.Depth, HighWater: a.HighWater, Limit: a.Limit, LimitBy: a.LimitBy(), Somaxconn: a.Somaxconn,
		Arrivals: a.Arrivals, Overflows: a.Overflows, EMFILE: a.EMFILE,
		Wait: distribution(a.Wait), WaitRung: a.WaitRung, WaitIsInterval: a.WaitIsInterval,
	}
	if a.Listeners > 1 {
		r.Listeners = a.Listeners
	}
	return r
}

// each is the limit of one of the port's listeners.
func (a *Accept) each() uint64 { return a.Limit / uint64(max(a.Listeners, 1)) }

// limitBy says which of the two bounds a full queue: listen() takes the smaller of
// the application's backlog and somaxconn (kernel __sys_listen). A limit above the
// present somaxconn was taken before the sysctl was lowered: neither is certain.
// LimitBy names what bounds the queue: "backlog", the application's, "somaxconn", or
// "" where neither is certain.
func (a *Accept) LimitBy() string {
	switch {
	case a.Somaxconn == 0 || a.Limit == 0 || a.each() > a.Somaxconn:
		return ""
	case a.each() < a.Somaxconn:
		return "backlog"
	}
	return "somaxconn"
}

func lossReport(l *Loss) *LossReport {
	r := LossReport{
		Retransmits: l.Retransmits, ResetsSent: l.ResetsSent, ResetsReceived: l.ResetsReceived,
		ZeroWindows: l.ZeroWindows, NagleWrites: l.NagleWrites, RwndLimited: optSeconds(l.RwndLimited), SndbufLimited: optSeconds(l.SndbufLimited),
		NodeListenOverflows: l.NodeListenOverflows, NodeListenDrops: l.NodeListenDrops,
		NodeUDPRcvbufErrors: l.NodeUDPRcvbufErrors,
	}
	if r == (LossReport{}) {
		return nil
	}
	return &r
}

func roleReport(r *Role) RoleReport {
	out := RoleReport{
		Role: r.Name, Threads: r.Threads, Wakeups: r.Wakeups, Wait: distribution(r.Wait),
		OnCPU: optSeconds(r.OnCPU), RunDelay: optSeconds(r.RunDelay), Preempted: r.Preempted,
	}
	if t := r.Throttled; t != nil {
		out.Throttled = &ThrottleReport{
			Periods: t.Periods, ThrottledPeriods: t.ThrottledPeriods, Time: t.Time.Seconds(), Quota: t.Quota,
		}
	}
	return out
}

func streamReport(s *Stream) StreamReport {
	return StreamReport{
		ID: s.ID, Port: s.Port, NetNS: s.NetNS, TTFT: s.TTFT.Seconds(), WorstGap: s.WorstGap.Seconds(),
		Stages: stageSeconds(s.TTFTStages), GapStages: stageSeconds(s.GapStages),
	}
}

func stageSeconds(in map[string]time.Duration) map[string]float64 {
	if in == nil {
		return nil
	}
	out := make(map[string]float64, len(in))
	for name, d := range in {
		out[name] = d.Seconds()
	}
	return out
}

func agentReport(a *AgentCost) AgentReport {
	r := AgentReport{
		RSSBytes: a.RSSBytes, KernelMapBytes: a.KernelMapBytes, CPUSeconds: a.CPU.Seconds(),
		Lost: map[string]uint64{},
	}
	for place, n := range a.Lost {
		r.Lost[place] = n
	}
	for _, p := range a.Programs {
		r.Programs = append(r.Programs, ProgramReport(p))
	}
	return r
}

func optSeconds(d *time.Duration) *float64 {
	if d == nil {
		return nil
	}
	return new(d.Seconds())
}

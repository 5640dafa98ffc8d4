// SPDX-License-Identifier: Apache-2.0

package collectors

import (
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/diagnosis"
)

// Snapshot is all that one scrape is made of.
type Snapshot struct {
	Measured *diagnosis.Measured // cumulative; nil: the helper is gone
	Taken    time.Time
	OwnNetNS uint64              // the agent's network namespace has no label
	Findings []diagnosis.Finding // of the last minute
	Daemon   Daemon
}

// Daemon is what the daemon says of itself.
type Daemon struct {
	Version        string
	RSSBytes       uint64
	CPU            time.Duration
	HelperUp       bool
	TTFTObjective  time.Duration // 0: none
	GapObjective   time.Duration
	Record         *Record // nil: it is switched off
	ReloadsOK      uint64
	ReloadsRefused uint64
	ConfigLoaded   time.Time
}

// Record is the state of the record on disk.
type Record struct {
	Snapshots uint64
	Bytes     int64
	Oldest    time.Time         // zero: it is empty
	Failures  map[string]uint64 // by reason
}

// Collector serves the table from snapshots.
type Collector struct {
	take   func() *Snapshot
	beside prometheus.Gatherer
}

// New returns a collector that asks take for a snapshot at each scrape, and adds what
// beside has (nil: nothing).
func New(take func() *Snapshot, beside prometheus.Gatherer) *Collector {
	return &Collector{take, beside}
}

// Each hands the families of a page to f, by name and one at a time: of a node with
// many ports all of them together are tens of megabytes. (A registry would hold them
// all, and take longer to check what the table declares than it takes to make it.)
func (c *Collector) Each(f func(*dto.MetricFamily) error) error {
	s := c.sink()
	var more []*dto.MetricFamily
	if c.beside != nil {
		var err error
		if more, err = c.beside.Gather(); err != nil {
			return err
		}
	}
	for _, own := range byName {
		for len(more) > 0 && more[0].GetName() < own.Name {
			if err := f(more[0]); err != nil {
				return err
			}
			more = more[1:]
		}
		if family := s.family(own); family != nil {
			if err := f(family); err != nil {
				return err
			}
		}
	}
	for _, m := range more {
		if err := f(m); err != nil {
			return err
		}
	}
	return nil
}

func (c *Collector) sink() *sink {
	x := c.take()
	s := newSink()
	if m := x.Measured; m != nil {
		for i := range m.Ports {
			s.port(x, &m.Ports[i])
		}
		s.namespaces(x, m)
		s.agent(m)
	}
	s.findings(x)
	s.daemon(&x.Daemon)
	for _, f := range Table {
		if n := s.folded[f]; n > 0 {
			s.add(&FoldedSeries, float64(n), f.Name)
		}
	}
	return s
}

// labelsOf are the values of perPort.
func labelsOf(x *Snapshot, p *diagnosis.Port) []string {
	port := overflow
	if p.Port != 0 {
		port = strconv.Itoa(int(p.Port))
	}
	return []string{port, netns(x, p.NetNS), p.Process, p.Container, p.Pod, p.Model}
}

func netns(x *Snapshot, inode uint64) string {
	if inode == 0 || inode == x.OwnNetNS {
		return ""
	}
	return strconv.FormatUint(inode, 10)
}

// port adds the rows of one watched port. A stage or wait without a sample has no
// row; exchanges, TTFT and gap have, so that their first increase is seen.
func (s *sink) port(x *Snapshot, p *diagnosis.Port) {
	labels := labelsOf(x, p)
	with := func(more ...string) []string { return append(labels[:len(labels):len(labels)], more...) }
	s.count(&Exchanges, p.Exchanges, labels...)
	s.count(&Connections, p.Connections, labels...)
	ttft, gap := exemplarsOf(x, p)
	s.observe(&TTFT, p.TTFT, ttft, labels...)
	s.observe(&FirstWrite, used(p.FirstWrite), nil, labels...)
	s.observe(&Gap, p.Gap, gap, labels...)
	for st := range attribution.NumStages {
		name, t := attribution.Stage(st).String(), &p.Stages[st]
		s.observe(&TTFTStage, used(t.TTFT), nil, with(name)...)
		s.observe(&GapStage, used(t.Gap), nil, with(name)...)
		if x.Daemon.TTFTObjective > 0 && t.TTFTMissed > 0 {
			s.add(&ObjectiveMissed, float64(t.TTFTMissed), with("ttft", name)...)
		}
		if x.Daemon.GapObjective > 0 && t.GapMissed > 0 {
			s.add(&ObjectiveMissed, float64(t.GapMissed), with("gap", name)...)
		}
	}
	if a := p.Accept; a != nil && p.Port != 0 {
		s.add(&AcceptDepth, float64(a.Depth), labels...)
		s.count(&AcceptHighWater, a.HighWater, labels...)
		if a.Limit > 0 {
			s.add(&AcceptLimit, float64(a.Limit), with(a.LimitBy())...)
		}
		s.count(&AcceptArrivals, a.Arrivals, labels...)
		s.count(&AcceptOverflows, a.Overflows, labels...)
		s.observe(&AcceptWait, used(a.Wait), nil, labels...)
		s.count(&AcceptEMFILE, a.EMFILE, labels...)
	}
	for i := range p.Sched {
		s.role(&p.Sched[i], with(p.Sched[i].Name))
	}
	if len(p.Sched) > 0 && p.Sched[0].Throttled != nil {
		s.add(&Throttled, p.Sched[0].Throttled.Time.Seconds(), labels...)
	}
	l := &p.Loss
	s.count(&Retransmits, l.Retransmits, labels...)
	s.count(&Resets, l.ResetsSent, with("sent")...)
	s.count(&Resets, l.ResetsReceived, with("received")...)
	s.count(&ZeroWindows, l.ZeroWindows, labels...)
	s.count(&NagleWrites, l.NagleWrites, labels...)
	s.duration(&SendLimited, l.RwndLimited, with("receive_window")...)
	s.duration(&SendLimited, l.SndbufLimited, with("send_buffer")...)
}

// used is nil for a histogram without samples.
func used(h *attribution.Histogram) *attribution.Histogram {
	if h == nil || h.Count() == 0 {
		return nil
	}
	return h
}

func (s *sink) duration(f *Family, d *time.Duration, labels ...string) {
	if d != nil {
		s.add(f, d.Seconds(), labels...)
	}
}

func (s *sink) role(r *diagnosis.Role, labels []string) {
	s.observe(&RunQueueWait, used(r.Wait), nil, labels...)
	s.count(&Wakeups, r.Wakeups, labels...)
	s.count(&Preemptions, r.Preempted, labels...)
	s.duration(&ThreadCPU, r.OnCPU, labels...)
	s.duration(&RunDelay, r.RunDelay, labels...)
	s.add(&Threads, float64(r.Threads), labels...)
}

// exemplarsOf are the slowest streams of the port.
func exemplarsOf(x *Snapshot, p *diagnosis.Port) (ttft, gap []Exemplar) {
	for _, st := range x.Measured.Streams {
		if st.Port != p.Port || st.NetNS != p.NetNS {
			continue
		}
		if st.TTFT > 0 {
			ttft = append(ttft, Exemplar{st.TTFT, st.ID, x.Taken})
		}
		if st.WorstGap > 0 {
			gap = append(gap, Exemplar{st.WorstGap, st.ID, x.Taken})
		}
	}
	return ttft, gap
}

// namespaces adds the counters of whole network namespaces, once each.
func (s *sink) namespaces(x *Snapshot, m *diagnosis.Measured) {
	done := map[string]bool{}
	for i := range m.Ports {
		p := &m.Ports[i]
		ns := netns(x, p.NetNS)
		if done[ns] || p.Port == 0 {
			continue
		}
		done[ns] = true
		s.count(&ListenOverflows, p.Loss.NodeListenOverflows, ns)
		s.count(&ListenDrops, p.Loss.NodeListenDrops, ns)
		s.count(&UDPRcvbufErrors, p.Loss.NodeUDPRcvbufErrors, ns)
	}
}

func (s *sink) findings(x *Snapshot) {
	for _, f := range x.Findings {
		port := ""
		if f.Port != 0 {
			port = strconv.Itoa(int(f.Port))
		}
		s.place(&Findings, []string{f.ID, f.Severity, port, netns(x, f.NetNS)}).value = 1
	}
}

// agent adds what the probes say of themselves.
func (s *sink) agent(m *diagnosis.Measured) {
	for _, c := range m.Coverage {
		rung := c.Rung
		if rung == "" {
			rung = "none"
		}
		s.place(&SignalRung, []string{c.Signal, rung}).value = 1
		for _, r := range c.BetterRefused {
			s.place(&SignalRefused, []string{c.Signal, r.Rung, firstLine(r.Why)}).value = 1
		}
		if c.Missing {
			s.place(&SignalRefused, []string{c.Signal, "none", firstLine(c.Note)}).value = 1
		}
	}
	for _, p := range m.Agent.Programs {
		s.add(&ProgramRuns, float64(p.Runs), p.Name)
		s.add(&ProgramSeconds, float64(p.Runs)*p.NSPerRun/1e9, p.Name)
	}
	for _, f := range m.Agent.Maps {
		s.add(&MapEntries, float64(f.Entries), f.Name)
		s.add(&MapCapacity, float64(f.Capacity), f.Name)
	}
	for where, n := range m.Agent.Lost {
		place, reason, _ := strings.Cut(where, "/")
		s.add(&Lost, float64(n), place, reason)
	}
	s.add(&FoldedPorts, float64(m.Agent.Lost["ports/budget"]))
	s.add(&WatchedPorts, float64(len(m.Ports)))
	s.add(&Memory, float64(m.Agent.RSSBytes), "helper")
	s.add(&Memory, float64(m.Agent.KernelMapBytes), "kernel_maps")
	s.add(&CPU, m.Agent.CPU.Seconds(), "helper")
}

// firstLine bounds a reason: it becomes a label.
func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > 160 {
		s = strings.ToValidUTF8(s[:160], "")
	}
	return s
}

func (s *sink) daemon(d *Daemon) {
	if d.TTFTObjective > 0 {
		s.add(&Objective, d.TTFTObjective.Seconds(), "ttft")
	}
	if d.GapObjective > 0 {
		s.add(&Objective, d.GapObjective.Seconds(), "gap")
	}
	s.add(&Memory, float64(d.RSSBytes), "daemon")
	s.add(&CPU, d.CPU.Seconds(), "daemon")
	up := 0.0
	if d.HelperUp {
		up = 1
	}
	s.add(&HelperUp, up)
	if r := d.Record; r != nil {
		s.add(&RecordSnapshots, float64(r.Snapshots))
		s.add(&RecordBytes, float64(r.Bytes))
		if !r.Oldest.IsZero() {
			s.add(&RecordOldest, float64(r.Oldest.UnixNano())/1e9)
		}
		for reason, n := range r.Failures {
			s.add(&RecordFailures, float64(n), reason)
		}
	}
	s.add(&Reloads, float64(d.ReloadsOK), "ok")
	s.add(&Reloads, float64(d.ReloadsRefused), "refused")
	if !d.ConfigLoaded.IsZero() {
		s.add(&ConfigLoaded, float64(d.ConfigLoaded.UnixNano())/1e9)
	}
	s.add(&BuildInfo, 1, d.Version, revision(), runtime.Version())
}

func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, kv := range info.Settings {
			if kv.Key == "vcs.revision" {
				return kv.Value
			}
		}
	}
	return ""
}

// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/bpf/accept"
	"github.com/velo-agent/velo-agent/bpf/ladder"
	"github.com/velo-agent/velo-agent/diagnosis"
	"github.com/velo-agent/velo-agent/preflight"
)

// baseline is what the node's own counters stood at when the window began.
type baseline struct {
	roles    map[int]map[string]*roleTimes // by pid and role
	net      map[uint64]preflight.NetCounters
	throttle map[int]preflight.CPUControl
	cpu      time.Duration
}

func (s *Session) readBaseline() baseline {
	b := baseline{
		roles: map[int]map[string]*roleTimes{}, net: map[uint64]preflight.NetCounters{},
		throttle: map[int]preflight.CPUControl{}, cpu: ownCPU(),
	}
	for _, t := range s.targets.list {
		b.read(s, t)
	}
	return b
}

// read adds what the counters around a target stand at.
func (b *baseline) read(s *Session, t *target) {
	if t.inside == 0 {
		return
	}
	if _, ok := b.net[t.NetNS]; !ok {
		if c, err := s.opts.Host.NetCounters(t.inside); incomplete(err) {
			b.net[t.NetNS] = c
		}
	}
	for _, pid := range t.pids {
		if list, err := s.opts.Host.Roles(pid, &s.seen.marks.names); incomplete(err) && b.roles[pid] == nil {
			b.roles[pid] = map[string]*roleTimes{}
			for _, r := range list {
				b.roles[pid][r.Name] = &roleTimes{last: r.Sched}
			}
		}
		if levels, err := s.opts.Host.CgroupCPU(pid); err == nil {
			if c, ok := preflight.Tightest(levels); ok {
				b.throttle[pid] = c
			}
		}
	}
}

// forget drops what no target needs any more after gone went.
func (b *baseline) forget(gone *target, left *targets) {
	if !slices.ContainsFunc(left.list, func(t *target) bool { return t.NetNS == gone.NetNS }) {
		delete(b.net, gone.NetNS)
	}
	for _, pid := range gone.pids {
		if !slices.ContainsFunc(left.list, func(t *target) bool { return slices.Contains(t.pids, pid) }) {
			delete(b.roles, pid)
			delete(b.throttle, pid)
		}
	}
}

// Measure returns what was seen since Open.
func (s *Session) Measure() (*diagnosis.Measured, error) {
	m, err := s.measure(Reading{})
	if err != nil {
		return nil, err
	}
	return m.Measured, nil
}

func (s *Session) measure(how Reading) (*measured, error) {
	m := &measured{Measured: &diagnosis.Measured{Window: time.Since(s.begun), Node: node(), Coverage: slices.Clone(s.coverage)}}
	if s.missing == nil {
		s.drain()
	}
	s.seen.mu.Lock()
	defer s.seen.mu.Unlock()
	list, err := s.news(how.Lazy)
	if err != nil {
		return nil, err
	}
	walk := s.survey(list)
	m.Coverage = append(m.Coverage, s.hidden()...)
	if s.backlog.ever != nil {
		m.Coverage = append(m.Coverage, *s.backlog.ever)
	}
	around := s.around()
	for i, t := range s.targets.list {
		open, found := walk[t.index]
		if resting, err := s.tell(t, &list[i], open); err != nil {
			return nil, err
		} else if resting {
			r := rest{At: i, Port: t.Port, NetNS: t.NetNS}
			if list[i].around {
				r.Around = &diagnosis.Port{}
				s.fillNode(r.Around, t, around)
			}
			m.Rest = append(m.Rest, r)
			continue
		}
		p := describe(t)
		if t.inside != 0 {
			p.Accept.Somaxconn = around.somaxconn(t)
		}
		if found {
			p.Accept.Depth, p.Accept.Limit, p.Accept.Listeners = open.AcceptDepth, open.AcceptLimit, int(open.Listeners)
		}
		if f := list[i].figures; f != nil {
			s.fill(&p, t, f)
			if found {
				s.fillOpen(&p, t, f, open)
			}
		}
		s.fillNode(&p, t, around)
		m.Ports = append(m.Ports, p)
	}
	if s.missing == nil {
		m.Streams = s.seen.slowest(s.targets)
	}
	if walk != nil { // else nobody knows which ports still have connections
		if err := s.retire(func(index int) int { return int(walk[index].Established) }); err != nil {
			return nil, err
		}
	}
	m.Agent = s.cost(walk)
	if how.Forget {
		s.seen.streams = map[streamKey]*stream{}
	}
	return m, nil
}

// walk returns what the sockets say now, by target, or nil where it failed.
func (s *Session) walk() map[int]bpf.OpenSockets {
	open, at, err := s.sockets.Survey()
	if err != nil {
		s.opts.Log.Warn("walking the sockets", "error", err)
		return nil
	}
	s.seen.tick(at)
	return open
}

// describe says what the target is; its figures follow.
func describe(t *target) diagnosis.Port {
	if t.other() {
		return diagnosis.Port{Process: "other", Accept: &diagnosis.Accept{}}
	}
	p := diagnosis.Port{
		Port: t.Port, Engine: t.engine, Model: t.model, NetNS: t.NetNS, MPTCP: t.MPTCP,
		Accept: &diagnosis.Accept{Depth: uint64(t.Depth), Limit: uint64(t.Limit)},
	}
	for _, a := range t.Addrs {
		p.Addresses = append(p.Addresses, a.String())
	}
	p.PID = t.owner()
	p.Process, p.Cgroup, p.Container, p.Pod = t.process.Comm, t.process.Cgroup, t.process.Container, t.process.Pod
	return p
}

// fill adds what the probes saw.
func (s *Session) fill(p *diagnosis.Port, t *target, f *bpf.PortFigures) {
	p.Connections, p.Exchanges = &f.Connections, &f.Exchanges
	p.TTFT, p.FirstWrite, p.Gap = &f.TTFT, &f.FirstWrite, &f.Gap
	for st := range attribution.NumStages {
		p.Stages[st].TTFT = &f.TTFTStages[st]
	}
	p.Stages[attribution.Engine].Gap = &f.GapStages[attribution.Engine]
	p.Stages[attribution.SendQueue].Gap = &f.GapStages[attribution.SendQueue]
	for st := range attribution.NumStages {
		p.Stages[st].TTFTMissed, p.Stages[st].GapMissed = f.TTFTMissed[st], f.GapMissed[st]
	}
	if !s.held("wake_to_run") || len(t.pids) == 0 {
		for _, st := range []attribution.Stage{attribution.WakeToRun, attribution.RuntimeHandoff, attribution.Reader} {
			p.Stages[st].TTFT = nil
		}
	}
	a := p.Accept
	a.Arrivals, a.HighWater, a.EMFILE = &f.AcceptArrivals, &f.AcceptHighWater, &f.EMFILE
	if s.rung("accepted") != accept.RungExit {
		a.EMFILE = nil // only a system call's return tells
	}
	if s.held("connection_state") {
		a.Wait, a.WaitRung = &f.AcceptWait, s.rung("accepted")
		a.WaitIsInterval = a.WaitRung == accept.RungFirstReceive || a.WaitRung == accept.RungFirstRead
	} else {
		p.Stages[attribution.AcceptWait].TTFT = nil
	}
	if s.held("loss_and_reset") {
		p.Loss.Retransmits = &f.Retransmits
		if strings.Contains(s.rung("loss_and_reset"), "send_reset") {
			p.Loss.ResetsSent = &f.ResetsSent
		}
		if strings.Contains(s.rung("loss_and_reset"), "receive_reset") {
			p.Loss.ResetsReceived = &f.ResetsReceived
		}
	}
	p.Loss.ZeroWindows, p.Loss.NagleWrites = &f.ZeroWindows, &f.NagleWrites
}

// fillOpen adds the figures of which each open socket has its part and the closed ones
// have left theirs. One that closes between the two readings may be in neither, or in
// both: so none of these goes back.
func (s *Session) fillOpen(p *diagnosis.Port, t *target, f *bpf.PortFigures, open bpf.OpenSockets) {
	m := &t.most
	m.overflows = max(m.overflows, f.AcceptOverflows+open.AcceptOverflows)
	m.rwnd, m.sndbuf = max(m.rwnd, f.RwndJiffies+open.RwndJiffies), max(m.sndbuf, f.SndbufJiffies+open.SndbufJiffies)
	p.Accept.Overflows = new(m.overflows)
	if j := s.seen.jiffy(); j > 0 {
		rwnd, sndbuf := time.Duration(m.rwnd)*j, time.Duration(m.sndbuf)*j
		p.Loss.RwndLimited, p.Loss.SndbufLimited = &rwnd, &sndbuf
	}
}

func (s *Session) hold(signal string) *ladder.Hold {
	for _, h := range s.holds {
		if h.Signal == signal {
			return h
		}
	}
	return &ladder.Hold{}
}

func (s *Session) held(signal string) bool   { return s.hold(signal).Held() }
func (s *Session) rung(signal string) string { return s.hold(signal).Rung }

// fillNode adds what the node's own counters say: it needs no probe.
func (s *Session) fillNode(p *diagnosis.Port, t *target, a *around) {
	if t.inside == 0 {
		return
	}
	if now, ok := a.net(t); ok {
		d := now.Sub(s.base.net[t.NetNS])
		p.Loss.NodeListenOverflows = value(d, preflight.ListenOverflows)
		p.Loss.NodeListenDrops = value(d, preflight.ListenDrops)
		p.Loss.NodeUDPRcvbufErrors = value(d, preflight.UDPRcvbufErrors)
	}
	byName := map[string]*diagnosis.Role{}
	for _, pid := range t.pids {
		for _, r := range a.roles(pid) {
			d := byName[r.Name]
			if d == nil {
				d = &diagnosis.Role{Name: r.Name, Throttled: s.throttled(pid, a)}
				s.fillRole(d, roleKey{t.index, r.Name})
				byName[r.Name] = d
			}
			d.Threads += len(r.Threads)
			if r.Counted > 0 {
				addTimes(d, s.base.times(pid, r.Name, r.Sched))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		p.Sched = append(p.Sched, *byName[name])
	}
}

// roleTimes are the times of a role's threads in one process.
type roleTimes struct {
	last  preflight.SchedStat // of the threads that there were
	total preflight.SchedStat // since the baseline
}

// times returns what the role has taken since the baseline, now being what its threads
// have. It never falls: those that ended take along just what they did since the last
// reading.
func (b *baseline) times(pid int, role string, now preflight.SchedStat) preflight.SchedStat {
	if b.roles[pid] == nil {
		b.roles[pid] = map[string]*roleTimes{}
	}
	t := b.roles[pid][role]
	if t == nil {
		t = &roleTimes{}
		b.roles[pid][role] = t
	}
	d := now.Sub(t.last)
	t.total.Run += max(0, d.Run)
	t.total.Wait += max(0, d.Wait)
	t.last = now
	return t.total
}

func addTimes(d *diagnosis.Role, t preflight.SchedStat) {
	if d.OnCPU == nil {
		d.OnCPU, d.RunDelay = new(time.Duration), new(time.Duration)
	}
	*d.OnCPU += t.Run
	*d.RunDelay += t.Wait
}

func (s *Session) fillRole(d *diagnosis.Role, key roleKey) {
	i, ok := s.seen.marks.roles[key]
	if !ok || !s.held("wake_to_run") {
		return
	}
	if f, err := s.maps.Role(i); err == nil {
		d.Wakeups, d.Preempted, d.Wait = &f.Wakeups, &f.Preemptions, &f.Wait
	}
}

func (s *Session) throttled(pid int, a *around) *diagnosis.Throttle {
	now, ok := preflight.Tightest(a.levels(pid))
	before, had := s.base.throttle[pid]
	if !ok || !had || !now.HasThrottle {
		return nil
	}
	cores, _ := now.Cores()
	return &diagnosis.Throttle{
		Periods: now.Periods - before.Periods, ThrottledPeriods: now.Throttled - before.Throttled,
		Time: now.ThrottledBy - before.ThrottledBy, Quota: cores,
	}
}

func value(c preflight.NetCounters, name string) *uint64 {
	if v, ok := c[name]; ok {
		return &v
	}
	return nil
}

// cost is what the agent itself took and lost.
func (s *Session) cost(walk map[int]bpf.OpenSockets) diagnosis.AgentCost {
	c := diagnosis.AgentCost{RSSBytes: ownRSS(), CPU: ownCPU() - s.base.cpu, Lost: map[string]uint64{}}
	maps.Copy(c.Lost, s.seen.lost)
	if s.targets.folded > 0 {
		c.Lost["ports/budget"] = s.targets.folded
	}
	if s.maps == nil {
		return c
	}
	kernel, err := s.maps.Lost()
	if err != nil {
		s.opts.Log.Warn("reading what was lost", "error", err)
	}
	maps.Copy(c.Lost, kernel)
	c.Maps = s.fills()
	conns := uint64(0)
	for _, open := range walk {
		conns += open.Established
	}
	c.KernelMapBytes = s.maps.Memory(conns)
	if !s.counted {
		return c
	}
	for _, pc := range s.maps.Costs() {
		out := diagnosis.ProgramCost{Name: pc.Name, Runs: pc.Runs}
		if pc.Runs > 0 {
			out.NSPerRun = float64(pc.Time) / float64(pc.Runs)
		}
		c.Programs = append(c.Programs, out)
	}
	slices.SortFunc(c.Programs, func(a, b diagnosis.ProgramCost) int { return strings.Compare(a.Name, b.Name) })
	return c
}

// fills says how full the bounded tables are.
func (s *Session) fills() []diagnosis.MapFill {
	fill := func(name string, n, of int) diagnosis.MapFill {
		return diagnosis.MapFill{Name: name, Entries: uint64(n), Capacity: uint64(of)}
	}
	list := []diagnosis.MapFill{
		fill("ports", len(s.targets.list), bpf.MaxPorts), fill("ports_beyond", len(s.targets.beyond), bpf.MaxWatched-bpf.MaxPorts),
		fill("roles", len(s.seen.marks.roles), bpf.MaxRoles), fill("streams", len(s.seen.streams), streamsKept),
	}
	if n, err := s.maps.Accepting(); err == nil {
		list = append(list, fill("accepting", n, bpf.MaxAccepting))
	}
	if s.records != nil {
		list = append(list, fill("records_bytes", s.records.Waiting(), s.records.Size()))
	}
	return list
}

func node() diagnosis.Node {
	n := diagnosis.Node{AgentVersion: Version}
	n.Hostname, _ = os.Hostname()
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		n.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return n
}

func ownCPU() time.Duration {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

func ownRSS() uint64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

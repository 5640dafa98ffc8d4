// SPDX-License-Identifier: Apache-2.0

package collectors

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/diagnosis"
)

// full is a snapshot in which everything was measured, and more roles were seen than
// there is room for.
func full() *Snapshot {
	n := uint64(3)
	d := time.Second
	var h attribution.Histogram
	h.Add(d)
	p := diagnosis.Port{
		Port: 8000, NetNS: 7, Process: "engine", Container: "c", Pod: "p", Model: "m",
		Connections: &n, Exchanges: &n, TTFT: &h, FirstWrite: &h, Gap: &h,
		Accept: &diagnosis.Accept{Limit: 128, Somaxconn: 4096, Depth: 1, HighWater: &n, Arrivals: &n, Overflows: &n, Wait: &h, EMFILE: &n},
		Loss: diagnosis.Loss{
			Retransmits: &n, ResetsSent: &n, ResetsReceived: &n, ZeroWindows: &n, NagleWrites: &n, RwndLimited: &d, SndbufLimited: &d,
			NodeListenOverflows: &n, NodeListenDrops: &n, NodeUDPRcvbufErrors: &n,
		},
	}
	for st := range attribution.NumStages {
		p.Stages[st] = diagnosis.StageTimes{TTFT: &h, TTFTMissed: 1, GapMissed: 1}
	}
	p.Stages[attribution.Engine].Gap, p.Stages[attribution.SendQueue].Gap = &h, &h
	for i := range rolesOfPorts + 1 {
		p.Sched = append(p.Sched, diagnosis.Role{
			Name: fmt.Sprintf("role %d", i), Threads: 1, Wakeups: &n, Wait: &h, OnCPU: &d, RunDelay: &d, Preempted: &n,
			Throttled: &diagnosis.Throttle{Time: d},
		})
	}
	return &Snapshot{
		Taken: time.Unix(1700000000, 0), OwnNetNS: 7,
		Measured: &diagnosis.Measured{
			Ports:   []diagnosis.Port{p},
			Streams: []diagnosis.Stream{{ID: "1.2", Port: 8000, NetNS: 7, TTFT: d, WorstGap: d}},
			Coverage: []diagnosis.Coverage{
				{Signal: "left", Rung: "second", BetterRefused: []diagnosis.Refused{{Rung: "first", Why: "too old\nand more"}}},
				{Signal: "read", Missing: true, Note: strings.Repeat("ä", 200)},
			},
			Agent: diagnosis.AgentCost{
				RSSBytes: 1, KernelMapBytes: 2, CPU: d, Lost: map[string]uint64{"ports/budget": 4, "records/ring_full": 5},
				Programs: []diagnosis.ProgramCost{{Name: "sent", Runs: 10, NSPerRun: 100}},
				Maps:     []diagnosis.MapFill{{Name: "ports", Entries: 1, Capacity: 128}},
			},
		},
		Findings: []diagnosis.Finding{{ID: "resets", Severity: diagnosis.Warning, Port: 8000, NetNS: 7}, {ID: "events_lost", Severity: diagnosis.Warning}},
		Daemon: Daemon{
			Version: "1.2.3", RSSBytes: 1, CPU: d, HelperUp: true, TTFTObjective: d, GapObjective: d, ConfigLoaded: time.Unix(1, 0), ReloadsOK: 1,
			Record: &Record{Snapshots: 1, Bytes: 2, Oldest: time.Unix(1, 0), Failures: map[string]uint64{"disk_full": 1}},
		},
	}
}

// TestFull: everything measured gives each family of the table and no other, with its
// type, its help and its labels, within its budget.
func TestFull(t *testing.T) {
	got := gather(t, full())
	kinds := map[Type]dto.MetricType{Counter: dto.MetricType_COUNTER, Gauge: dto.MetricType_GAUGE, Histogram: dto.MetricType_HISTOGRAM}
	for _, f := range Table {
		g := got[f.Name]
		if g == nil {
			t.Errorf("%s is not served", f.Name)
			continue
		}
		delete(got, f.Name)
		if g.GetType() != kinds[f.Type] || g.GetHelp() != f.Help || len(g.Metric) > f.Budget {
			t.Errorf("%s is served as a %v of %d series, %q", f.Name, g.GetType(), len(g.Metric), g.GetHelp())
		}
		for _, m := range g.Metric {
			// Empty ones are left out, the others come in the table's order.
			rest := f.Labels
			for _, name := range labelNames(m) {
				i := slices.Index(rest, name)
				if i < 0 {
					t.Errorf("%s is served with the labels %v, the table names %v", f.Name, labelNames(m), f.Labels)
					break
				}
				rest = rest[i+1:]
			}
		}
	}
	if len(got) > 0 {
		t.Errorf("served and not in the table: %v", slices.Sorted(maps.Keys(got)))
	}
}

func labelNames(m *dto.Metric) []string {
	var names []string
	for _, l := range m.Label {
		names = append(names, l.GetName())
	}
	return names
}

// series finds the value of the only series of a family with these label values.
func series(t *testing.T, got map[string]*dto.MetricFamily, f *Family, labels ...string) float64 {
	t.Helper()
	want := map[string]string{}
	for i := 0; i+1 < len(labels); i += 2 {
		want[labels[i]] = labels[i+1]
	}
	var found []*dto.Metric
	for _, m := range got[f.Name].GetMetric() {
		have := map[string]string{}
		for _, l := range m.Label {
			have[l.GetName()] = l.GetValue()
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(want)), func(name string) bool { return have[name] != want[name] }) {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d series of %s have %v", len(found), f.Name, want)
	}
	m := found[0]
	return m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
}

func TestValues(t *testing.T) {
	got := gather(t, full())
	for _, c := range []struct {
		f      *Family
		want   float64
		labels []string
	}{
		{&Exchanges, 3, []string{"port", "8000", "netns", "", "process", "engine", "container", "c", "pod", "p", "model", "m"}},
		{&TTFT, 1, nil},
		{&TTFTStage, 1, []string{"stage", "accept_wait"}},
		{&ObjectiveMissed, 1, []string{"objective", "gap", "stage", "engine"}},
		{&Objective, 1, []string{"objective", "ttft"}},
		{&AcceptLimit, 128, []string{"limit_by", "backlog"}},
		{&Resets, 3, []string{"direction", "sent"}},
		{&SendLimited, 1, []string{"by", "send_buffer"}},
		{&Throttled, 1, nil},
		{&Threads, 1, []string{"role", "role 0"}},
		{&Threads, 2, []string{"port", "other", "role", "other"}},
		{&FoldedSeries, 2, []string{"family", "velo_agent_threads"}},
		{&FoldedPorts, 4, nil},
		{&Lost, 5, []string{"place", "records", "reason", "ring_full"}},
		{&SignalRung, 1, []string{"signal", "read", "rung", "none"}},
		{&SignalRefused, 1, []string{"signal", "left", "rung", "first", "reason", "too old"}},
		{&SignalRefused, 1, []string{"signal", "read", "reason", strings.Repeat("ä", 80)}},
		{&ProgramSeconds, 1e-6, []string{"program", "sent"}},
		{&Findings, 1, []string{"id", "events_lost", "port", ""}},
		{&RecordOldest, 1, nil},
		{&Reloads, 0, []string{"result", "refused"}},
		{&BuildInfo, 1, []string{"version", "1.2.3"}},
	} {
		if v := series(t, got, c.f, c.labels...); v != c.want {
			t.Errorf("%s%v is %v, want %v", c.f.Name, c.labels, v, c.want)
		}
	}
}

// TestSamePort: what is of one network namespace's port is not of another's.
func TestSamePort(t *testing.T) {
	x := full()
	away := x.Measured.Ports[0]
	away.NetNS = 8
	x.Measured.Ports = append(x.Measured.Ports, away)
	x.Measured.Streams = []diagnosis.Stream{{ID: "own", Port: 8000, NetNS: 7, TTFT: time.Second}, {ID: "away", Port: 8000, NetNS: 8, TTFT: time.Second}}
	x.Findings = []diagnosis.Finding{{ID: "resets", Severity: diagnosis.Warning, Port: 8000, NetNS: 7}, {ID: "resets", Severity: diagnosis.Warning, Port: 8000, NetNS: 8}}
	got := gather(t, x)
	for ns, id := range map[string]string{"": "own", "8": "away"} {
		if v := series(t, got, &Findings, "port", "8000", "netns", ns); v != 1 {
			t.Errorf("the finding of namespace %q is %v", ns, v)
		}
		var found []string
		for _, m := range got[TTFT.Name].Metric {
			if netnsOf(m) != ns {
				continue
			}
			for _, b := range m.Histogram.Bucket {
				if e := b.Exemplar; e != nil {
					found = append(found, e.Label[0].GetValue())
				}
			}
		}
		if !slices.Equal(found, []string{id}) {
			t.Errorf("the exemplars of namespace %q are %v, want %s", ns, found, id)
		}
	}
}

func netnsOf(m *dto.Metric) string {
	for _, l := range m.Label {
		if l.GetName() == "netns" {
			return l.GetValue()
		}
	}
	return ""
}

// TestAbsent: what was not measured has no series; it is never 0.
func TestAbsent(t *testing.T) {
	daemons := []*Family{&Memory, &CPU, &HelperUp, &Reloads, &BuildInfo}
	agents := append(slices.Clone(daemons), &FoldedPorts, &WatchedPorts)
	for _, c := range []struct {
		name  string
		ports []diagnosis.Port
		want  []*Family
	}{
		{"a port of which nothing is known", []diagnosis.Port{{Port: 8000}}, agents},
		{"a queue of which only the depth is known", []diagnosis.Port{{Port: 8000, Accept: &diagnosis.Accept{}}}, append(slices.Clone(agents), &AcceptDepth)},
		{"the ports beyond the budget have no queue", []diagnosis.Port{{Accept: &diagnosis.Accept{}}}, agents},
		{"a role without times", []diagnosis.Port{{Port: 8000, Sched: []diagnosis.Role{{Name: "r"}}}}, append(slices.Clone(agents), &Threads)},
		{
			"histograms without a sample: the three that are there from the start",
			[]diagnosis.Port{empty()},
			append(slices.Clone(agents), &TTFT, &Gap, &AcceptDepth, &Threads),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantFamilies(t, gather(t, &Snapshot{Measured: &diagnosis.Measured{Ports: c.ports}}), c.want)
		})
	}
	t.Run("without a helper", func(t *testing.T) { wantFamilies(t, gather(t, &Snapshot{}), daemons) })
	t.Run("no objectives, no misses", func(t *testing.T) {
		x := full()
		x.Daemon.TTFTObjective, x.Daemon.GapObjective = 0, 0
		got := gather(t, x)
		if got[ObjectiveMissed.Name] != nil || got[Objective.Name] != nil {
			t.Error("there are misses of no objective")
		}
	})
}

// empty is a port whose histograms are there and hold nothing.
func empty() diagnosis.Port {
	var h attribution.Histogram
	p := diagnosis.Port{
		Port: 8000, TTFT: &h, FirstWrite: &h, Gap: &h, Accept: &diagnosis.Accept{Wait: &h}, Sched: []diagnosis.Role{{Name: "r", Wait: &h}},
	}
	for st := range attribution.NumStages {
		p.Stages[st] = diagnosis.StageTimes{TTFT: &h, Gap: &h}
	}
	return p
}

func wantFamilies(t *testing.T, got map[string]*dto.MetricFamily, want []*Family) {
	t.Helper()
	names := map[string]bool{}
	for _, f := range want {
		names[f.Name] = true
	}
	if have, need := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(names)); !slices.Equal(have, need) {
		t.Errorf("served are %v, want %v", have, need)
	}
}

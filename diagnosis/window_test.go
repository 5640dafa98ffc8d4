// SPDX-License-Identifier: Apache-2.0

package diagnosis

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/velo-agent/velo-agent/attribution"
)

// reading is a cumulative reading after n exchanges of 10 ms on one port.
func reading(at time.Duration, n int) *Measured {
	h := func() *attribution.Histogram {
		var h attribution.Histogram
		for range n {
			h.Add(10 * time.Millisecond)
		}
		return &h
	}
	p := Port{
		Port: 8000, NetNS: 1, Exchanges: new(uint64(n)), TTFT: h(),
		Accept: &Accept{Depth: uint64(n), HighWater: new(uint64(n)), Arrivals: new(uint64(2 * n)), Wait: h()},
		Loss:   Loss{Retransmits: new(uint64(n)), RwndLimited: new(time.Duration(n))},
		Sched:  []Role{{Name: "python", Threads: 2, Wakeups: new(uint64(n)), Throttled: &Throttle{Periods: uint64(n)}}},
	}
	p.Stages[attribution.Engine] = StageTimes{TTFT: h(), TTFTMissed: uint64(n)}
	return &Measured{
		Window: at, Ports: []Port{p},
		Agent: AgentCost{CPU: time.Duration(n), Lost: map[string]uint64{"a/b": uint64(n)}, Programs: []ProgramCost{{Name: "sent", Runs: uint64(n)}}},
	}
}

func TestSince(t *testing.T) {
	w := reading(30*time.Second, 50).Since(reading(20*time.Second, 20))
	p := &w.Ports[0]
	if w.Window != 10*time.Second || *p.Exchanges != 30 || p.TTFT.Count() != 30 || p.TTFT.Sum() != 300*time.Millisecond {
		t.Errorf("%v, %d exchanges, TTFT %d in %v", w.Window, *p.Exchanges, p.TTFT.Count(), p.TTFT.Sum())
	}
	if p.Accept.Depth != 50 || *p.Accept.Arrivals != 60 || p.Accept.Wait.Count() != 30 {
		t.Errorf("accept is %+v", p.Accept)
	}
	if *p.Loss.Retransmits != 30 || *p.Loss.RwndLimited != 30 || p.Stages[attribution.Engine].TTFTMissed != 30 {
		t.Errorf("%d retransmits, limited %v, %d missed", *p.Loss.Retransmits, *p.Loss.RwndLimited, p.Stages[attribution.Engine].TTFTMissed)
	}
	if r := p.Sched[0]; *r.Wakeups != 30 || r.Threads != 2 || r.Throttled.Periods != 30 {
		t.Errorf("the role is %+v", r)
	}
	if a := w.Agent; a.CPU != 30 || a.Lost["a/b"] != 30 || a.Programs[0].Runs != 30 {
		t.Errorf("the agent took %+v", a)
	}
}

// TestSinceRestart: figures that began anew count in whole, and a new port too.
func TestSinceRestart(t *testing.T) {
	w := reading(5*time.Second, 5).Since(reading(20*time.Second, 20))
	if p := &w.Ports[0]; *p.Exchanges != 5 || p.TTFT.Count() != 5 || w.Window != 5*time.Second {
		t.Errorf("%d exchanges, TTFT %d, window %v", *p.Exchanges, p.TTFT.Count(), w.Window)
	}
	now, before := reading(30*time.Second, 7), reading(20*time.Second, 3)
	before.Ports[0].Port = 9000
	if w := now.Since(before); len(w.Ports) != 1 || *w.Ports[0].Exchanges != 7 {
		t.Errorf("the new port has %+v", w.Ports)
	}
}

// TestWindowsAddUp: windows that meet are the window that they make.
func TestWindowsAddUp(t *testing.T) {
	at := []*Measured{reading(0, 0), reading(10*time.Second, 4), reading(20*time.Second, 4), reading(30*time.Second, 9)}
	sum := at[1].Since(at[0]).Add(at[2].Since(at[1])).Add(at[3].Since(at[2]))
	whole := at[3].Since(at[0])
	a, b := sum.Ports[0], whole.Ports[0]
	if sum.Window != whole.Window || *a.Exchanges != *b.Exchanges || a.TTFT.Count() != b.TTFT.Count() || a.TTFT.Sum() != b.TTFT.Sum() {
		t.Errorf("%v with %d exchanges, want %v with %d", sum.Window, *a.Exchanges, whole.Window, *b.Exchanges)
	}
	if !reflect.DeepEqual(sum.Agent, whole.Agent) {
		t.Errorf("the agent took %+v, want %+v", sum.Agent, whole.Agent)
	}
}

func TestStreamsOfTwoWindows(t *testing.T) {
	a := []Stream{{ID: "x.1", Port: 1, TTFT: 5, WorstGap: 2}, {ID: "y.1", Port: 1, TTFT: 9}}
	b := []Stream{{ID: "x.1", Port: 1, WorstGap: 7}, {ID: "z.1", Port: 1, TTFT: 1}}
	got := worstOf(a, b)
	if len(got) != 3 || got[0].ID != "y.1" || got[1].ID != "x.1" || got[1].TTFT != 5 || got[1].WorstGap != 7 || got[2].ID != "z.1" {
		t.Errorf("the slowest are %+v", got)
	}
	if worstOf(nil, nil) != nil {
		t.Error("streams that were not followed became an empty list")
	}
}

// TestMeasuredSurvivesJSON: the helper and the record send readings as JSON.
func TestMeasuredSurvivesJSON(t *testing.T) {
	m := jammed()
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var got Measured
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(Build(m), Build(&got)) {
		t.Error("the report after a round trip through JSON is another")
	}
}

func TestCompare(t *testing.T) {
	a, b := reading(10*time.Second, 10), reading(10*time.Second, 30)
	b.Ports = append(b.Ports, Port{Port: 9000, Exchanges: new(uint64(4))})
	d := Compare(a, b, Span{}, Span{})
	if len(d.Ports) != 2 || d.A.WindowS != 10 {
		t.Fatalf("%+v", d)
	}
	f := d.Ports[0].Figures[0]
	if f.Name != "exchanges" || *f.A != 10 || *f.B != 30 {
		t.Errorf("the first figure is %+v", f)
	}
	if f := d.Ports[1].Figures[0]; f.A != nil || *f.B != 4 {
		t.Errorf("a port of B alone has %+v: absent is not zero", f)
	}
}

// TestDiffIsHarmless: what a process is called cannot drive a terminal.
func TestDiffIsHarmless(t *testing.T) {
	var text strings.Builder
	if err := WriteDiffText(&text, Compare(hostile(), hostile(), Span{}, Span{})); err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(text.String(), func(r rune) bool { return r != '\n' && unicode.IsControl(r) }); i >= 0 {
		t.Errorf("a control character: %q", text.String()[i:min(i+40, text.Len())])
	}
}

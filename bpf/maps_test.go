// SPDX-License-Identifier: Apache-2.0

package bpf

import (
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/bpf/ladder"
)

// newMaps creates the maps, or skips where this process may not.
func newMaps(t *testing.T) *Maps {
	t.Helper()
	m, err := NewMaps()
	if errors.Is(err, ladder.ErrCapability) || errors.Is(err, ladder.ErrNoBTF) {
		t.Skipf("needs BPF: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func (m *Maps) readConfig(t *testing.T) mapsConfig {
	t.Helper()
	var c mapsConfig
	if err := m.collection.Maps["config_map"].Lookup(uint32(0), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestTrace(t *testing.T) {
	m := newMaps(t)
	for _, c := range []struct {
		name            string
		in              Tracing
		ttft, gap, mask uint64
	}{
		{"nothing", Tracing{}, math.MaxUint64, math.MaxUint64, math.MaxUint32},
		{"every exchange", Tracing{Sample: 1}, math.MaxUint64, math.MaxUint64, 0},
		{"one in three becomes one in four", Tracing{Sample: 3}, math.MaxUint64, math.MaxUint64, 3},
		{"long ones", Tracing{TTFT: time.Second, Gap: time.Millisecond}, 1e9, 1e6, math.MaxUint32},
		{"all gaps", Tracing{Gap: time.Second, AllGaps: true}, math.MaxUint64, 0, math.MaxUint32},
	} {
		if err := m.Trace(c.in); err != nil {
			t.Fatal(err)
		}
		if got := m.readConfig(t); got.TtftThreshold != c.ttft || got.GapThreshold != c.gap || got.SampleMask != c.mask {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

func TestFlagsComeAndGoWithTheirRung(t *testing.T) {
	m := newMaps(t)
	if err := m.SetFlag(FlagContent, true); err != nil {
		t.Fatal(err)
	}
	closed := false
	r := m.Flagged(FlagSched, ladder.Rung{Name: "r", Attach: func() (io.Closer, error) {
		return closer(func() error { closed = true; return nil }), nil
	}})
	c, err := r.Attach()
	if err != nil {
		t.Fatal(err)
	}
	if got := Flag(m.readConfig(t).Flags); got != FlagContent|FlagSched {
		t.Errorf("the flags are %b while the rung is in use", got)
	}
	if err := c.Close(); err != nil || !closed {
		t.Errorf("closing: %v, closed %v", err, closed)
	}
	if got := Flag(m.readConfig(t).Flags); got != FlagContent {
		t.Errorf("the flags are %b afterwards", got)
	}
	refused := m.Flagged(FlagSched, ladder.Rung{Attach: func() (io.Closer, error) { return nil, io.EOF }})
	if _, err := refused.Attach(); !errors.Is(err, io.EOF) {
		t.Errorf("the refusal is %v", err)
	}
	if got := Flag(m.readConfig(t).Flags); got != FlagContent {
		t.Errorf("the flags are %b after a refused rung", got)
	}
}

type closer func() error

func (c closer) Close() error { return c() }

func TestFigures(t *testing.T) {
	m := newMaps(t)
	var p mapsPort
	p.Connections, p.Untimed, p.RwndJiffies = 3, 10, 7
	p.TtftAtOnce.Sum, p.TtftAtOnce.Max = 1e6, 1e6
	p.TtftAtOnce.Counts[attribution.Bucket(time.Millisecond)] = 1
	p.TtftLater.Sum, p.TtftLater.Max = 2e6, 2e6
	p.TtftLater.Counts[attribution.Bucket(2*time.Millisecond)] = 1
	p.FirstWrite.Sum, p.FirstWrite.Max = 1e6, 1e6
	p.FirstWrite.Counts[attribution.Bucket(time.Millisecond)] = 1
	p.TtftStages[attribution.Engine].Max = 1e6
	p.TtftStages[attribution.Engine].Counts[attribution.Bucket(time.Millisecond)] = 2
	p.TtftStages[attribution.Reader].Sum, p.TtftStages[attribution.Reader].Max = 5e5, 5e5
	p.TtftStages[attribution.Reader].Counts[5] = 1 // the other was too short, which the kernel does not count
	if err := m.collection.Maps["ports"].Put(uint32(5), &p); err != nil {
		t.Fatal(err)
	}
	f, err := m.Port(5)
	if err != nil {
		t.Fatal(err)
	}
	if f.Connections != 3 || f.RwndJiffies != 7 || f.TTFT.Count() != 2 || f.TTFT.Sum() != 3*time.Millisecond || f.TTFT.Max() != 2*time.Millisecond {
		t.Errorf("the figures are %d connections, %d jiffies, TTFT %d %v %v", f.Connections, f.RwndJiffies, f.TTFT.Count(), f.TTFT.Sum(), f.TTFT.Max())
	}
	if f.Exchanges != 12 || f.FirstWrite.Count() != 2 || f.FirstWrite.Sum() != 2*time.Millisecond {
		t.Errorf("%d exchanges, first writes %d %v; want 12, 2 and 2ms", f.Exchanges, f.FirstWrite.Count(), f.FirstWrite.Sum())
	}
	if r := maps.Collect(f.TTFTStages[attribution.Reader].Used()); r[0] != 1 || r[5] != 1 {
		t.Errorf("of two readers' times %d were too short; want 1", r[0])
	}
	if e := f.TTFTStages[attribution.Engine].Sum(); e != 2500*time.Microsecond {
		t.Errorf("the engine had %v; what the others leave of 3ms is 2.5ms", e)
	}
	// Every stage has as many samples as the TTFT it is a part of.
	for s := range attribution.NumStages {
		if n := f.TTFTStages[s].Count(); n != 2 {
			t.Errorf("%v has %d samples, want 2", s, n)
		}
	}
	if _, err := m.Port(MaxPorts); err == nil {
		t.Error("a port index beyond the budget was read")
	}
	if _, err := m.Role(MaxRoles); err == nil {
		t.Error("a role index beyond the budget was read")
	}
}

func TestLostStartsAtZeroAndNamesAll(t *testing.T) {
	m := newMaps(t)
	lost, err := m.Lost()
	if err != nil || len(lost) != len(lostReasons) {
		t.Fatalf("%d reasons, %v", len(lost), err)
	}
	for name, n := range lost {
		if n != 0 || !slices.Contains(lostReasons, name) {
			t.Errorf("%s is %d", name, n)
		}
	}
}

// TestMemoryFitsTheBudget: the maps and ten thousand connections, 80 MiB in all
// with the process, so at most 64 here.
func TestMemoryFitsTheBudget(t *testing.T) {
	m := newMaps(t)
	if b := m.Memory(10_000); b > 64<<20 {
		t.Errorf("the maps and 10,000 connections take %d MiB", b>>20)
	}
}

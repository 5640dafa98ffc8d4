// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"strings"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// drains is a mux that returns credit at each look.
func drains(t testing.TB, o Options) (*Mux, *tap) {
	o.VisitFloor = time.Nanosecond
	m, l := solo(t, o)
	l.eager = true
	return m, l
}

func TestDrain(t *testing.T) {
	m, l := drains(t, Options{Window: 4})
	box := bound(m, 1)[0]
	a := slot(0, 0)
	m.Batch(producer, batched(1, 0, opens(a, 1), item(a, 1, "a"), item(a, 2, "b"), item(a, 3, "c")))
	if s := l.all(t); s != "" {
		t.Errorf("before anything is read %q was said", s)
	}
	var f Frames
	box.Take(&f)
	drained(box, &Frames{}, 0, 1, 1)
	drained(box, &Frames{}, 0, 1, 1)
	if s := l.all(t); s != "credit:0.0:2" {
		t.Errorf("two reads return %q", s)
	}
	drained(box, &Frames{}, 0, 1, 1)
	drained(box, &Frames{}, 0, 7, 7) // more than came
	if s := l.all(t); s != "credit:0.0:1" {
		t.Errorf("reads of more than came return %q", s)
	}
	m.sound(t)
	m.Batch(producer, batched(1, 1, item(a, 4, "d"), frame(a, 5, wire.FrameFinalized), closes(a, 6, wire.TerminalSent)))
	if s := got(box, true); s != "d finalized" {
		t.Errorf("saw %q", s)
	}
	box.Release(0)
	if s := l.all(t); s != "" {
		t.Errorf("the credit of a slot that is gone returns: %q", s)
	}
	if !m.peers[producer].idle() {
		t.Error("drained slots are left")
	}
}

// TestWithheld keeps credit back while a slot has too many bytes.
func TestWithheld(t *testing.T) {
	m, l := drains(t, Options{Window: 8, SlotBytes: 1000})
	box := bound(m, 1)[0]
	a := slot(0, 0)
	big := strings.Repeat("x", 600)
	m.Batch(producer, batched(1, 0, opens(a, 1), item(a, 1, big), item(a, 2, big), item(a, 3, big)))
	var f Frames
	box.Take(&f)
	drained(box, &Frames{}, 0, 1, 609)
	if s := l.all(t); s != "" {
		t.Errorf("above the budget %q returns", s)
	}
	drained(box, &Frames{}, 0, 1, 609)
	if s := l.all(t); s != "credit:0.0:2" {
		t.Errorf("below it %q returns", s)
	}
	m.Batch(producer, batched(1, 1, item(a, 4, big), item(a, 5, big))) // the budget refuses no record
	if s := got(box, false); s != big+" "+big {
		t.Error("a record within the credit is refused")
	}
}

// TestFloor visits a peer's slots no more often than it should.
func TestFloor(t *testing.T) {
	m, l := solo(t, Options{VisitFloor: time.Hour, Window: 1})
	bound(m, 1)
	a, p := slot(0, 0), m.peers[producer]
	m.Batch(producer, batched(1, 0, opens(a, 1), frame(a, 1, wire.FrameHeartbeat)))
	if s := l.all(t); s != "credit:0.0:1" {
		t.Errorf("the first visit returns %q", s)
	}
	m.Batch(producer, batched(1, 1, frame(a, 2, wire.FrameHeartbeat)))
	p.visitNow()
	if s := l.all(t); s != "" || !p.asked.Load() {
		t.Errorf("the next visit is made too early and returns %q", s)
	}
	p.visited = time.Time{}
	p.visitNow()
	if s := l.all(t); s != "credit:0.0:1" || p.asked.Load() {
		t.Errorf("the next visit returns %q", s)
	}
	if n := value(m.opts.Metrics.DrainVisits); n != 2 {
		t.Errorf("%v visits are counted, want 2", n)
	}
}

// TestCoalesced drains again and again while the connection takes little.
func TestCoalesced(t *testing.T) {
	m, l := drains(t, Options{Window: 32, MaxBatch: 16 + 17})
	boxes := bound(m, 3)
	p := m.peers[producer]
	for i := range 3 {
		m.Batch(producer, batched(1, uint32(i), opens(slot(i, 0), uint64(i+1))))
	}
	seq := uint32(3)
	for n := range uint32(30) {
		for i := range 3 {
			m.Batch(producer, batched(1, seq, item(slot(i, 0), n+1, "x")))
			seq++
			got(boxes[i], true)
		}
		p.in.mu.Lock()
		p.returnAll()
		p.in.mu.Unlock()
		p.collect()
	}
	if len(p.grants) > 3 {
		t.Errorf("%d grants wait for 3 slots", len(p.grants))
	}
	if s := l.all(t); strings.Count(s, "credit") > 6 || strings.Count(s, ":29") != 3 {
		t.Errorf("said %q", s)
	}
	m.sound(t)
}

// TestConsumerAsks ends streams or asks for their end from the consumer's side.
func TestConsumerAsks(t *testing.T) {
	a := slot(0, 0)
	claim := func(m *Mux, _ *Bind) { m.Batch(producer, batched(1, 0, opens(a, 1), item(a, 1, "x"))) }
	stop := func(m *Mux, b *Bind) { m.Stop(b) }
	cancel := func(m *Mux, b *Bind) { m.Cancel(b) }
	gone := func(m *Mux, b *Bind) { b.Inbox.Close(); m.Batch(producer, batched(1, 1, item(a, 2, "y"))) }
	data := func(m *Mux, _ *Bind) {
		m.Batch(producer, batched(1, 1, item(a, 2, "y"), frame(a, 3, wire.FrameFinalized), closes(a, 4, wire.TerminalSent)))
	}
	type acts []func(*Mux, *Bind)
	for _, c := range []struct {
		name   string
		acts   acts
		v2, v1 string // what the producer is told
		seen   string
		ends   int
	}{
		{"stop", acts{claim, stop, stop, data}, "stop:0.0", "", "x y finalized", 1},
		{"stop before open", acts{stop, claim, data}, "stop:0.0", "", "x y finalized", 1},
		{"cancel", acts{claim, cancel, cancel, data}, "cancel:0.0", "close:0.0:unknown_slot", "x", 1},
		{"cancel wins over stop", acts{claim, stop, cancel, stop}, "cancel:0.0", "close:0.0:unknown_slot", "x", 1},
		{"cancel before open", acts{cancel, claim}, "close:0.0:unknown_slot", "close:0.0:unknown_slot", "", 0},
		{"consumer gone", acts{claim, gone}, "close:0.0:unknown_slot", "close:0.0:unknown_slot", "", 1},
		{"cancel after the end", acts{claim, data, cancel, stop}, "", "", "x y finalized", 1},
		{"claimed once", acts{claim, func(m *Mux, _ *Bind) { m.Batch(producer, batched(1, 1, opens(slot(1, 0), 1))) }}, "close:1.0:unknown_slot", "close:1.0:unknown_slot", "x", 0},
	} {
		for v, want := range map[wire.Version]string{wire.V1: c.v1, wire.V2: c.v2} {
			t.Run(c.name+" "+v.Key(), func(t *testing.T) {
				m, l := drains(t, Options{})
				m.peers[producer].out.version = v
				claimed, ends := 0, 0
				b := &Bind{Anchor: 1, Session: 1, Inbox: &Inbox{}, Claimed: func() { claimed++ }, Ended: func() { ends++ }}
				m.Bind(b)
				for _, act := range c.acts {
					act(m, b)
					m.peers[producer].out.version = v
				}
				if s := l.all(t); s != want {
					t.Errorf("told %q, want %q", s, want)
				}
				if s := got(b.Inbox, false); s != c.seen {
					t.Errorf("the consumer sees %q, want %q", s, c.seen)
				}
				if ends != c.ends || claimed > 1 {
					t.Errorf("%d ends and %d claims, want %d", ends, claimed, c.ends)
				}
				m.sound(t)
			})
		}
	}
}

// TestStopOfV1 has nothing to say to a peer that knows no stop, and more to send.
func TestStopOfV1(t *testing.T) {
	m, l := drains(t, Options{MaxBatch: 60})
	p := m.peers[producer]
	b := &Bind{Anchor: 1, Session: 1, Inbox: &Inbox{}}
	m.Bind(b)
	m.Batch(producer, batched(1, 0, opens(slot(0, 0), 1)))
	o := produces(t, m, l, 1, Terms{Credit: 9, Version: wire.V1}, Hooks{})[0]
	must(t, o.Item([]byte("a full batch of 60")))
	must(t, o.Item([]byte("and another of that")))
	m.Stop(b)
	if s := l.all(t); s != "data:0.0:a full batch of 60 data:0.0:and another of that" || len(p.out.closes) > 0 {
		t.Errorf("sent %q", s)
	}
}

func TestBindsAreReleased(t *testing.T) {
	m, _ := solo(t, Options{})
	b := &Bind{Anchor: 1, Session: 1, Inbox: &Inbox{}}
	m.Bind(b)
	if !m.Release(b) || m.Release(b) {
		t.Error("a bind is not released once")
	}
	m.Bind(b)
	m.Batch(producer, batched(1, 0, opens(slot(0, 0), 1)))
	if m.Release(b) {
		t.Error("a claimed bind is released")
	}
	if !m.Cancel(b) {
		t.Error("a claimed bind is not")
	}
	m.Bind(&Bind{Anchor: 1, Session: 2, Inbox: &Inbox{}}) // sessions of one anchor are apart
	m.Batch(producer, batched(1, 1, opens(slot(1, 0), 1)))
	if m.opts.Metrics.LiveSlots.Load() != 0 {
		t.Error("another session claims the bind")
	}
	left := 0
	for i := range m.binds.parts {
		left += len(m.binds.parts[i].wait)
	}
	if left != 1 {
		t.Errorf("%d binds wait, want 1", left)
	}
}

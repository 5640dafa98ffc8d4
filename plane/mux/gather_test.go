// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// TestGather has records come in several ways, and says how many leave in a write at last.
func TestGather(t *testing.T) {
	const most = 2 * time.Millisecond
	for _, c := range []struct {
		name  string
		every time.Duration // between two arrivals
		many  int           // records that arrive at once
		least int           // in the median write
		most  int
	}{
		{"one by one, thousands a second", 20 * time.Microsecond, 1, 95, 105},
		{"a few at a time", 50 * time.Microsecond, 3, 110, 130},
		{"bursts", time.Millisecond, 50, 50, 50},
		{"rarely", 5 * time.Millisecond, 1, 1, 1},
		{"often, but little is gathered", 500 * time.Microsecond, 1, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := gather{dense: true, holds: mostHeld}
			var now, due time.Duration
			staged, records, writes := 0, 0, 0
			leave := func(held bool) {
				g.left(now, most, staged, held)
				if now > time.Second {
					records += staged
					writes++
				}
				staged, due = 0, 0
			}
			for next := c.every; now < 3*time.Second; {
				if due > 0 && due <= next {
					now = due
					leave(true)
					continue
				}
				now = next
				next += c.every
				before := staged
				staged += c.many
				if due > 0 {
					if before < fewRecords && staged >= fewRecords && g.burst(now, most) {
						leave(false)
					}
					continue
				}
				if wait := g.wait(now, most); wait > 0 && (staged < fewRecords || !g.burst(now, most)) {
					due = now + wait
				} else {
					leave(false)
				}
			}
			if mean := records / writes; mean < c.least || mean > c.most {
				t.Errorf("%d records leave in a write, want %d to %d", mean, c.least, c.most)
			}
		})
	}
}

// TestHeld is an egress that holds records back, and what ends that.
func TestHeld(t *testing.T) {
	big := make([]byte, 500)
	for _, c := range []struct {
		name string
		do   func(m *Mux, o, other *Owner)
		sent int // records, with the one that was held
	}{
		{"nothing", func(*Mux, *Owner, *Owner) {}, 0},
		{"another record", func(_ *Mux, o, _ *Owner) { must(t, o.Item(nil)) }, 0},
		{"its timer", func(m *Mux, _, _ *Owner) { m.peers[producer].lingered() }, 1},
		{"its terminal", func(_ *Mux, o, _ *Owner) { must(t, o.Finish(wire.FrameDropped)) }, 0},
		{"a terminal that is a first record", func(_ *Mux, _, other *Owner) { must(t, other.Finish(wire.FrameDropped)) }, 3},
		{"many at once, the last with its close", func(_ *Mux, o, _ *Owner) {
			for range fewRecords - 2 {
				must(t, o.Item(nil))
			}
			must(t, o.Finish(wire.FrameDropped))
		}, fewRecords + 1},
		{"a full batch", func(_ *Mux, o, _ *Owner) { must(t, o.Item(big)); must(t, o.Item(big)) }, 2},
		{"a sender without credit", func(_ *Mux, _, other *Owner) {
			other.credit = 0
			wants(t, "without credit", other.Item(nil), ErrWouldBlock)
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, l := solo(t, Options{MaxBatch: 1000, Flush: Flush{Gather: time.Hour}})
			o := produces(t, m, l, 1, Terms{Credit: 99}, Hooks{})[0]
			other := produces(t, m, l, 1, Terms{Credit: 1}, Hooks{})[0]
			e := &m.peers[producer].out
			e.gather.dense, e.gather.holds = true, mostHeld
			before := l.kicks.Load()
			must(t, o.Item([]byte("first")))
			if s := l.all(t); l.kicks.Load() == before || s != "data:0.0:first" {
				t.Errorf("its first record is held: %q", s)
			}
			before = l.kicks.Load()
			must(t, o.Item([]byte("held")))
			if l.kicks.Load() > before || l.take(t) != nil {
				t.Error("it is not held")
			}
			c.do(m, o, other)
			if kicked := l.kicks.Load() > before; kicked != (c.sent > 0) {
				t.Errorf("the connection is told: %v", kicked)
			}
			sent := 0
			if s := l.take(t); s != nil {
				sent = len(s.records)
			}
			if sent != c.sent {
				t.Errorf("%d records leave, want %d", sent, c.sent)
			}
			m.sound(t)
		})
	}
}

// TestRoomAgain has many senders wait for room: each write tells a part of them, in their
// order, and the sweep the rest.
func TestRoomAgain(t *testing.T) {
	const senders = 400
	m, l := solo(t, Options{MaxBatch: 1000, QueueBytes: 4000})
	var told []int
	owners := make([]*Owner, senders)
	for i := range owners {
		owners[i] = produces(t, m, l, 1, Terms{Credit: 1000}, Hooks{Room: func() { told = append(told, i) }})[0]
	}
	for _, o := range owners { // the first takes all the room
		for o.Item(make([]byte, 20)) == nil {
		}
	}
	l.take(t)
	if n := len(told); n == 0 || n > senders/4 {
		t.Errorf("a write tells %d of %d that wait", n, senders)
	}
	m.steps(t, 1)
	for i, n := range told {
		if i != n {
			t.Fatalf("sender %d is told where %d should be", n, i)
		}
	}
	l.all(t)
	m.steps(t, 1)
	if len(told) != senders {
		t.Errorf("%d of %d that wait are told at last", len(told), senders)
	}
	m.sound(t)
}

// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// TestDown loses the connection that we write to.
func TestDown(t *testing.T) {
	m, l := drains(t, Options{})
	box := bound(m, 2)
	var ends []error
	o := produces(t, m, l, 3, Terms{Credit: 2}, Hooks{End: func(err error) { ends = append(ends, err) }})
	a, b := slot(0, 0), slot(1, 0)
	m.Batch(producer, batched(1, 0, opens(a, 1), opens(b, 2), item(a, 1, "x"), item(b, 1, "y")))
	got(box[0], true)
	must(t, o[0].Item([]byte("lost")))
	must(t, o[2].Finish(wire.FrameFinalized))
	m.Batch(producer, batched(1, 1, opens(slot(5, 0), 99))) // refused, and told so
	before := l.takeOnly(t)
	if n := len(before.records); n != 5 {
		t.Fatalf("%d records are on the way, want 5", n)
	}
	must(t, o[0].Item([]byte("lost")))
	got(box[1], true)
	l.eager = false
	l.down(errors.New("reset"))
	if len(ends) != 2 {
		t.Errorf("told %d producers, want 2", len(ends))
	}
	for _, err := range ends {
		wants(t, "the end", err, ErrPeerLost)
	}
	wants(t, "then", o[0].Item(nil), ErrPeerLost)
	wants(t, "what was ended", o[2].Err(), ErrEnded)
	if s := l.takeOnly(t); s == nil || s.header.Seq != 0 || s.header.Epoch <= before.header.Epoch || len(s.records) != 1 || say(&s.records[0]) != "close:5.0:unknown_slot" {
		t.Errorf("afterwards %+v is sent", s)
	}
	l.down(errors.New("refused")) // the same again, before it was written
	m.steps(t, 2)
	if s := l.all(t); s != "close:5.0:unknown_slot credit:0.0:1 credit:1.0:1" && s != "close:5.0:unknown_slot credit:1.0:1 credit:0.0:1" {
		t.Errorf("afterwards %q is said", s)
	}
	if n := value(m.opts.Metrics.EpochDeaths); n != 2 {
		t.Errorf("%v deaths are counted, want 2", n)
	}
	if n := value(m.opts.Metrics.CreditReposted); n < 1 {
		t.Errorf("%v grants put back", n)
	}
	m.sound(t)
	p := m.peers[producer]
	again, err := p.begin(Terms{Credit: 1, Version: wire.V2}, Hooks{})
	must(t, err)
	if again.id.Generation() == 0 {
		t.Error("a slot of the new epoch has a generation of the old")
	}
	l.down(nil)
	wants(t, "without a cause", again.Err(), ErrPeerLost)
}

// TestNoLink has every attempt to connect fail: credit is not forgotten, and nothing spins.
func TestNoLink(t *testing.T) {
	m, l := drains(t, Options{Linger: time.Microsecond, Window: 1})
	box := bound(m, 1)
	m.Batch(producer, batched(1, 0, opens(slot(0, 0), 1), item(slot(0, 0), 1, "x")))
	told := l.kicks.Load()
	again := func() {
		for l.kicks.Load() == told {
			time.Sleep(100 * time.Microsecond)
		}
		told = l.kicks.Load()
	}
	got(box[0], true)
	again()
	before := 0
	for range 5 {
		l.down(errors.New("refused"))
		time.Sleep(time.Millisecond)
		if l.kicks.Load() != told {
			t.Error("a link that cannot be made is tried at once again")
		}
		waited := 0
		for l.kicks.Load() == told && waited <= int(mostQuiet) {
			m.steps(t, 1)
			time.Sleep(time.Millisecond) // the visit's timer
			waited++
		}
		if waited < before || waited > int(mostQuiet) {
			t.Errorf("tried again after %d ticks, after %d the time before", waited, before)
		}
		before = waited
		told = l.kicks.Load()
	}
	if n := value(m.opts.Metrics.EpochDeaths); n != 0 {
		t.Errorf("%v epochs died, and none had begun", n)
	}
	if s := l.all(t); s != "credit:0.0:1" {
		t.Errorf("said %q", s)
	}
}

// TestJudge passes the window of silence, 10 ticks, after records may have been lost.
func TestJudge(t *testing.T) {
	const window = 10
	a := slot(0, 0)
	gap := func(m *Mux, _ *tap) { m.Batch(producer, batched(1, 5)) }
	downs := func(_ *Mux, l *tap) { l.down(errors.New("reset")) }
	told := func(m *Mux, _ *tap) { m.Suspect(producer); m.Suspect(99) }
	lives := func(n int) func(*testing.T, *Mux, *Inbox) { // n records, one each 5 ticks
		return func(t *testing.T, m *Mux, b *Inbox) {
			for i := range n {
				m.steps(t, 5)
				m.Batch(producer, batched(1, uint32(6+i), frame(a, uint32(1+i), wire.FrameHeartbeat)))
			}
		}
	}
	for _, c := range []struct {
		name string
		lose func(*Mux, *tap)
		then func(*testing.T, *Mux, *Inbox)
		dead bool
	}{
		{"gap and silence", gap, nil, true},
		{"lost link and silence", downs, nil, true},
		{"lost connection of the peer and silence", told, nil, true},
		{"nothing lost", func(*Mux, *tap) {}, nil, false},
		{"it goes on", gap, lives(3), false},
		{"another loss later", gap, func(t *testing.T, m *Mux, b *Inbox) {
			lives(1)(t, m, b)
			m.steps(t, 1)
			m.Batch(producer, batched(1, 20)) // before the first loss was dealt with
			m.steps(t, 10)
		}, true},
		{"records that wait are no life", gap, func(t *testing.T, m *Mux, _ *Inbox) {
			for i := range uint32(4) {
				m.steps(t, 5)
				m.Batch(producer, batched(1, 6+i, frame(a, 2+i, wire.FrameHeartbeat)))
			}
		}, true},
		{"a record is missing, no batch", func(m *Mux, _ *tap) { m.Batch(producer, batched(1, 1, item(a, 2, "y"))) }, nil, true},
		{"the missing record comes", func(m *Mux, _ *tap) { m.Batch(producer, batched(1, 1, item(a, 2, "y"), item(a, 1, "x"))) }, nil, false},
		{"a batch is cut", func(m *Mux, _ *tap) { m.Batch(producer, batched(1, 1, item(a, 1, "y"))[:30]) }, nil, true},
		{"without credit", gap, func(t *testing.T, m *Mux, b *Inbox) {
			m.Batch(producer, batched(1, 6, item(a, 1, "x"), item(a, 2, "x"), item(a, 3, "x"), item(a, 4, "x")))
			m.peers[producer].loss.Store(m.tick.Load())
			m.steps(t, 50)
		}, false},
		{"credit returned, and silence", gap, func(t *testing.T, m *Mux, b *Inbox) {
			m.Batch(producer, batched(1, 6, item(a, 1, "x"), item(a, 2, "x"), item(a, 3, "x"), item(a, 4, "x")))
			m.peers[producer].loss.Store(m.tick.Load())
			m.steps(t, 50)
			if got(b, true) != "x x x x" {
				t.Error("the stream is ended though its owner waits")
			}
			m.peers[producer].Take()
			m.steps(t, window-1)
			if m.opts.Metrics.LiveSlots.Load() != 1 {
				t.Error("the owner has no time to use its credit")
			}
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, l := drains(t, Options{Window: 4, Silence: window * Tick})
			box := bound(m, 1)[0]
			m.Batch(producer, batched(1, 0, opens(a, 1)))
			m.steps(t, 2)
			c.lose(m, l)
			m.steps(t, 1)
			if c.then != nil {
				c.then(t, m, box)
			}
			m.peers[producer].heard.Store(m.tick.Load())
			m.steps(t, window+1)
			if dead := m.opts.Metrics.LiveSlots.Load() == 0; dead != c.dead {
				t.Fatalf("the stream is ended: %v, want %v", dead, c.dead)
			}
			if !c.dead {
				return
			}
			if s := got(box, false); s != "dropped" {
				t.Errorf("saw %q", s)
			}
			if s := l.all(t); s != "cancel:0.0" && s != "cancel:0.0 credit:0.0:4" {
				t.Errorf("told %q", s)
			}
			if n := value(m.opts.Metrics.WatchdogFirings); n != 1 {
				t.Errorf("%v are counted, want 1", n)
			}
		})
	}
}

// TestPing has a peer be silent.
func TestPing(t *testing.T) {
	for _, c := range []struct {
		name     string
		answer   error
		in, out  bool // streams to us and from us
		asked    int
		consumer string
		ends     int
	}{
		{"it lives", nil, true, true, 1, "", 0},
		{"it does not", errors.New("no route"), true, true, 1, "dropped", 1},
		{"a producer learns it too", errors.New("no route"), false, true, 1, "", 1},
		{"without streams", errors.New("no route"), false, false, 0, "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked, ends := 0, 0
			m, l := solo(t, Options{Silence: 10 * Tick, Ping: func(_ context.Context, w wire.WorkerID) error {
				asked++
				if w != producer {
					t.Errorf("%d is asked", w)
				}
				return c.answer
			}})
			box := bound(m, 1)[0]
			if c.in {
				m.Batch(producer, batched(7, 0, opens(slot(0, 0), 1)))
			}
			if c.out {
				produces(t, m, l, 1, Terms{Credit: 1}, Hooks{End: func(err error) {
					if !errors.Is(err, ErrClosed) { // the test is over
						wants(t, "the end", err, ErrPeerLost)
						ends++
					}
				}})
			}
			m.Batch(producer, batched(7, 1))
			m.steps(t, 10)
			if asked > 0 {
				t.Error("asked too early")
			}
			m.Batch(producer, batched(7, 2))
			m.steps(t, 5)
			m.Batch(producer, batched(6, 9)) // of an old epoch: shows nothing
			m.steps(t, 6)
			if asked != c.asked || ends != c.ends {
				t.Errorf("asked %d times and %d ends, want %d and %d", asked, ends, c.asked, c.ends)
			}
			if s := got(box, false); s != c.consumer {
				t.Errorf("the consumer sees %q, want %q", s, c.consumer)
			}
			m.sound(t)
		})
	}
}

// TestEvict forgets peers that nobody uses.
func TestEvict(t *testing.T) {
	m, l := solo(t, Options{MaxPeers: 1})
	if _, err := m.Peer(99, wire.V2); err != nil || m.peers[producer] != nil {
		t.Fatalf("one that nobody uses does not make room: %v", err)
	}
	box := bound(m, 2)
	m.Batch(producer, batched(1, 0, opens(slot(0, 0), 1)))
	_, err := m.Peer(99, wire.V2)
	wants(t, "one peer too many", err, ErrTooMany)
	m.Batch(99, batched(1, 0))
	if len(m.peers) != 1 {
		t.Error("a batch makes a peer too many")
	}
	o := produces(t, m, l, 1, Terms{Credit: 1}, Hooks{})[0]
	old := m.peers[producer]
	epoch := old.out.epoch
	m.steps(t, 2*idleTicks)
	if m.peers[producer] != old {
		t.Fatal("a peer with streams is forgotten")
	}
	must(t, o.Finish(wire.FrameFinalized))
	m.Batch(producer, batched(1, 1, frame(slot(0, 0), 1, wire.FrameFinalized), closes(slot(0, 0), 2, wire.TerminalSent)))
	m.steps(t, 2*idleTicks)
	if m.peers[producer] != old {
		t.Fatal("a peer with records to send is forgotten")
	}
	l.all(t)
	if p, err := m.Peer(producer, 0); err != nil || p != old { // who asks may use it
		t.Fatalf("a peer is forgotten at once: %v", err)
	}
	m.steps(t, idleTicks)
	if m.peers[producer] != old {
		t.Fatal("a peer is forgotten though somebody asked for it")
	}
	m.steps(t, 1)
	if len(m.peers) != 0 {
		t.Fatal("a peer is kept without streams")
	}
	_, err = old.begin(Terms{Credit: 1}, Hooks{})
	wants(t, "opening at a forgotten peer", err, ErrPeerLost)
	drained(box[0], &Frames{}, 0, 1, 1) // late, and of no use
	m.Batch(producer, batched(1, 0, opens(slot(0, 0), 2), item(slot(0, 0), 1, "x")))
	if s := got(box[1], false); s != "x" {
		t.Errorf("at the new peer %q is seen", s)
	}
	if p := m.peers[producer]; p == old || p.out.epoch <= epoch {
		t.Error("the new peer begins below the old")
	}
}

// TestPeersEndOnce closes the mux and loses the peer at once.
func TestPeersEndOnce(t *testing.T) {
	m, l := solo(t, Options{})
	box := bound(m, 1)
	ends := make(chan error, 10)
	o := produces(t, m, l, 1, Terms{Credit: 1}, Hooks{End: func(err error) { ends <- err }})[0]
	m.Batch(producer, batched(1, 0, opens(slot(0, 0), 1)))
	p := m.peers[producer]
	m.Close()
	m.Close()
	p.Lost(ErrPeerLost)
	l.down(ErrPeerLost)
	wants(t, "the end", <-ends, ErrClosed)
	if len(ends) > 0 {
		t.Error("a producer is told twice")
	}
	wants(t, "then", o.Item(nil), ErrClosed)
	_, err := m.Peer(producer, 0)
	wants(t, "a peer after Close", err, ErrClosed)
	if s := got(box[0], false); s != "dropped" {
		t.Errorf("the consumer sees %q", s)
	}
}

// TestQuietBeat stages a heartbeat while the link is left alone: who sends next still tells
// the link.
func TestQuietBeat(t *testing.T) {
	m, l := solo(t, Options{})
	o := produces(t, m, l, 1, Terms{Credit: 9, Beat: 1}, Hooks{})[0]
	m.peers[producer].quiet.Store(m.tick.Load() + 10)
	before := l.kicks.Load()
	m.steps(t, 3)
	if n := l.kicks.Load() - before; n != 0 {
		t.Errorf("the link is told %d times while it is left alone", n)
	}
	must(t, o.Item([]byte("x")))
	if l.kicks.Load() == before {
		t.Error("the link is not told of a record")
	}
}

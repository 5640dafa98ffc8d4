// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"slices"
	"strings"
	"testing"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// TestReceive gives batches to a mux with binds of sessions 1 and 2 and a window of 2.
func TestReceive(t *testing.T) {
	a, b := slot(0, 0), slot(1, 0)
	last := func(id wire.SlotID, seq uint32) wire.Record { return frame(id, seq, wire.FrameFinalized) }
	e1 := func(r ...wire.Record) []byte { return batched(1, 0, r...) }
	flags := func(f byte, p []byte) []byte { p[1] = f; return p }
	version := func(v byte, p []byte) []byte { p[0] = v; return p }
	unknown := wire.Record{Type: wire.LifecycleSlot + 1, Slot: a, FrameSeq: 2}
	beat := wire.Record{Type: wire.SlotHeartbeat, Slot: a, FrameSeq: 1}
	drop := func(reason, n int) map[int]int { return map[int]int{reason: n} }
	for _, c := range []struct {
		name     string
		batches  [][]byte
		one, two string // what the consumers see
		answer   string
		drops    map[int]int
	}{
		{name: "open grants nothing", batches: [][]byte{e1(opens(a, 1))}},
		{name: "in order", batches: [][]byte{e1(opens(a, 1), item(a, 1, "x"), item(a, 2, "y"))}, one: "x y"},
		{name: "terminal without credit", batches: [][]byte{e1(opens(a, 1), item(a, 1, "x"), item(a, 2, "y"), last(a, 3), closes(a, 4, wire.TerminalSent))}, one: "x y finalized"},
		{name: "close without terminal", batches: [][]byte{e1(opens(a, 1), item(a, 1, "x"), closes(a, 2, wire.PeerGone))}, one: "x dropped"},
		{name: "terminal said to be sent", batches: [][]byte{e1(opens(a, 1), item(a, 1, "x"), closes(a, 2, wire.TerminalSent))}, one: "x dropped"},
		{name: "terminal, then peer gone", batches: [][]byte{e1(opens(a, 1), last(a, 1), closes(a, 2, wire.PeerGone))}, one: "finalized"},
		{name: "unknown session", batches: [][]byte{e1(opens(a, 9), item(a, 1, "x"), opens(b, 2), item(b, 1, "z"))}, two: "z", answer: "close:0.0:unknown_slot", drops: map[int]int{dropUnknownSlot: 1, dropClosedSlot: 1}},
		{name: "claimed twice", batches: [][]byte{e1(opens(a, 1), opens(b, 1), item(a, 1, "x"))}, one: "x", answer: "close:1.0:unknown_slot", drops: drop(dropUnknownSlot, 1)},
		{name: "collision keeps the bind", batches: [][]byte{e1(opens(a, 1), opens(slot(0, 1), 2), item(a, 1, "x"), opens(b, 2), item(b, 1, "z"))}, one: "x", two: "z", answer: "close:0.1:protocol_error", drops: drop(dropCollision, 1)},
		{name: "opened again", batches: [][]byte{e1(opens(a, 1), item(a, 1, "x"), opens(a, 2), item(a, 1, "z"))}, one: "x dropped", two: "z"},
		{name: "opened again for nobody", batches: [][]byte{e1(opens(a, 1), opens(a, 9), item(a, 1, "x"))}, one: "x", answer: "close:0.0:unknown_slot", drops: drop(dropUnknownSlot, 1)},
		{name: "index over the limit", batches: [][]byte{e1(opens(slot(wire.MaxIndex, 0), 1), opens(slot(wire.MaxIndex-1, 0), 1), item(slot(wire.MaxIndex-1, 0), 1, "x"))}, one: "x", answer: "close:65536.0:protocol_error", drops: drop(dropUnknownSlot, 1)},
		{name: "data before open", batches: [][]byte{e1(item(a, 1, "x"), opens(a, 1), item(a, 1, "y"))}, one: "y", drops: drop(dropClosedSlot, 1)},
		{name: "ahead is held", batches: [][]byte{e1(opens(a, 1), item(a, 2, "y"), item(a, 1, "x"))}, one: "x y"},
		{name: "held terminal and close", batches: [][]byte{e1(opens(a, 1), closes(a, 4, wire.TerminalSent), last(a, 3), item(a, 2, "y"), item(a, 1, "x"))}, one: "x y finalized"},
		{name: "held peer gone", batches: [][]byte{e1(opens(a, 1), closes(a, 2, wire.PeerGone), item(a, 1, "x"))}, one: "x dropped"},
		{name: "behind is dropped", batches: [][]byte{e1(opens(a, 1), item(a, 1, "x"), item(a, 1, "no"), item(a, 0, "no"))}, one: "x", drops: drop(dropDuplicate, 2)},
		{name: "held twice", batches: [][]byte{e1(opens(a, 1), item(a, 2, "y"), item(a, 2, "no"), item(a, 1, "x"))}, one: "x y", drops: drop(dropDuplicate, 1)},
		{name: "stale generation", batches: [][]byte{e1(opens(slot(0, 7), 1), item(slot(0, 6), 1, "no"), item(slot(0, 7), 1, "x"))}, one: "x", drops: drop(dropGeneration, 1)},
		{name: "credit overspent", batches: [][]byte{e1(opens(a, 1), opens(b, 2), item(a, 1, "x"), item(a, 2, "y"), item(a, 3, "no"), item(a, 4, "no"), item(b, 1, "z"))}, one: "x y dropped", two: "z", answer: "close:0.0:protocol_error", drops: drop(dropClosedSlot, 1)},
		{name: "credit overspent in the hold", batches: [][]byte{e1(opens(a, 1), item(a, 2, "no"), item(a, 3, "no"), item(a, 4, "no"))}, one: "dropped", answer: "close:0.0:protocol_error"},
		{name: "held too far ahead", batches: [][]byte{e1(opens(a, 1), item(a, 99, "no"))}, one: "dropped", answer: "close:0.0:protocol_error"},
		{name: "second terminal", batches: [][]byte{e1(opens(a, 1), last(a, 1), last(a, 2))}, one: "finalized", answer: "close:0.0:protocol_error"},
		{name: "held second terminal", batches: [][]byte{e1(opens(a, 1), last(a, 3), last(a, 2), item(a, 1, "x"))}, one: "x finalized", answer: "close:0.0:protocol_error"},
		{name: "record after the terminal", batches: [][]byte{e1(opens(a, 1), last(a, 1), item(a, 2, "no"))}, one: "finalized", answer: "close:0.0:protocol_error"},
		{name: "beat after the terminal", batches: [][]byte{e1(opens(a, 1), last(a, 1), frame(a, 2, wire.FrameHeartbeat))}, one: "finalized", answer: "close:0.0:protocol_error"},
		{name: "beats are seen by nobody", batches: [][]byte{e1(opens(a, 1), beat, frame(a, 2, wire.FrameHeartbeat))}, answer: "credit:0.0:2"},
		{name: "beats spend credit", batches: [][]byte{e1(opens(a, 1), beat, item(a, 2, "x"), item(a, 3, "no"))}, one: "x dropped", answer: "close:0.0:protocol_error"},
		{name: "sender error goes on", batches: [][]byte{e1(opens(a, 1), frame(a, 1, wire.AppendError(nil, wire.SenderError, "e")), item(a, 2, "x"))}, one: "sender_error x"},
		{name: "transport error ends", batches: [][]byte{e1(opens(a, 1), frame(a, 1, wire.AppendError(nil, wire.TransportError, "e")), closes(a, 2, wire.TerminalSent))}, one: "transport_error"},
		{name: "stale epoch", batches: [][]byte{batched(5, 0, opens(a, 1), item(a, 1, "x")), batched(4, 1, item(a, 2, "no"), closes(a, 3, wire.PeerGone))}, one: "x", drops: drop(dropStaleEpoch, 2)},
		{name: "epoch 0 is one", batches: [][]byte{batched(0, 0, opens(a, 1), item(a, 1, "x")), batched(1, 0, item(a, 2, "no"))}, one: "x dropped", drops: drop(dropClosedSlot, 1)},
		{name: "new epoch", batches: [][]byte{batched(5, 0, opens(a, 1), item(a, 1, "x"), item(a, 3, "no")), batched(6, 0, item(a, 2, "no"), opens(a, 2), item(a, 1, "z"))}, one: "x dropped", two: "z", drops: drop(dropClosedSlot, 1)},
		{name: "new epoch after a terminal", batches: [][]byte{batched(5, 0, opens(a, 1), last(a, 1)), batched(6, 0)}, one: "finalized"},
		{name: "new epoch in an unknown version", batches: [][]byte{batched(5, 0, opens(a, 1)), version(9, batched(6, 0, opens(a, 2)))}, one: "dropped"},
		{name: "unknown version", batches: [][]byte{version(9, e1(opens(a, 1)))}},
		{name: "other lane", batches: [][]byte{batched(5, 0, opens(a, 1)), flags(3, batched(6, 0, item(a, 1, "no")))}, drops: drop(dropLane, 1)},
		{name: "high flags are ignored", batches: [][]byte{flags(0xf0, e1(opens(a, 1), item(a, 1, "x")))}, one: "x"},
		{name: "unknown type skips the rest", batches: [][]byte{e1(opens(a, 1), item(a, 1, "x"), unknown, item(a, 2, "no"))}, one: "x"},
		{name: "lifecycle in V1 skips the rest", batches: [][]byte{version(1, e1(opens(a, 1), lifecycles(a, 1, wire.Stop), item(a, 1, "no")))}},
		{name: "truncated", batches: [][]byte{e1(opens(a, 1), item(a, 1, "x"), item(a, 2, "no"))[:16+29+22+5]}, one: "x"},
		{name: "trailing bytes", batches: [][]byte{append(e1(opens(a, 1), item(a, 1, "x")), 1)}, one: "x"},
		{name: "too short for a header", batches: [][]byte{e1()[:15], e1(opens(a, 1), item(a, 1, "x"))}, one: "x"},
		{name: "bare header", batches: [][]byte{e1(), batched(1, 1, opens(a, 1), item(a, 1, "x"))}, one: "x"},
		{name: "receiver's records for nobody", batches: [][]byte{e1(credits(a, 1), closes(a, 0, wire.UnknownSlot), lifecycles(a, 1, wire.Cancel), opens(a, 1), item(a, 1, "x"))}, one: "x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, l := solo(t, Options{Window: 2})
			boxes := bound(m, 2)
			for _, b := range c.batches {
				m.Batch(producer, b)
				m.sound(t)
			}
			if one, two := got(boxes[0], false), got(boxes[1], false); one != c.one || two != c.two {
				t.Errorf("the consumers see %q and %q, want %q and %q", one, two, c.one, c.two)
			}
			if answer := l.all(t); answer != c.answer {
				t.Errorf("answered %q, want %q", answer, c.answer)
			}
			for i, counter := range m.opts.Metrics.drops {
				if n := int(value(counter)); n != c.drops[i] {
					t.Errorf("%d dropped for %s, want %d", n, dropNames[i], c.drops[i])
				}
			}
		})
	}
}

func TestShutdown(t *testing.T) {
	m, _ := solo(t, Options{})
	boxes := bound(m, 3)
	m.Batch(producer, batched(1, 0, opens(slot(0, 0), 1), opens(slot(1, 0), 2), frame(slot(1, 0), 1, wire.FrameFinalized)))
	m.Close()
	if one, two := got(boxes[0], false), got(boxes[1], false); one != "dropped" || two != "finalized" {
		t.Errorf("the consumers see %q and %q", one, two)
	}
	m.Batch(producer, batched(2, 0, opens(slot(0, 0), 3)))
	if three := got(boxes[2], false); three != "" {
		t.Errorf("after Close a stream opens: %q", three)
	}
	empty(t, m)
}

// TestHoldBudgets has records wait that are too much for a slot or for its peer.
func TestHoldBudgets(t *testing.T) {
	big := strings.Repeat("x", 600)
	for _, c := range []struct {
		name  string
		o     Options
		sizes []int // of records ahead, each in a slot of its own if apart
		apart bool
		ended int
	}{
		{"slot", Options{SlotBytes: 1000, Window: 8}, []int{600, 600}, false, 1},
		{"slot's first is never too large", Options{SlotBytes: 100, Window: 8}, []int{600}, false, 0},
		{"peer", Options{PeerBytes: 1000, Window: 8}, []int{600, 600}, true, 1},
		{"within", Options{SlotBytes: 2000, PeerBytes: 2000, Window: 8}, []int{600, 600}, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, l := solo(t, c.o)
			boxes := bound(m, 2)
			records := []wire.Record{opens(slot(0, 0), 1), opens(slot(1, 0), 2)}
			for i, n := range c.sizes {
				index, seq := 0, uint32(2+i)
				if c.apart {
					index, seq = i, 2
				}
				records = append(records, item(slot(index, 0), seq, big[:n]))
			}
			m.Batch(producer, batched(1, 0, records...))
			m.sound(t)
			ended := 0
			for _, b := range boxes {
				if got(b, false) == "dropped" {
					ended++
				}
			}
			if closed := strings.Count(l.all(t), "protocol_error"); ended != c.ended || closed != c.ended {
				t.Errorf("%d streams ended and %d were closed, want %d", ended, closed, c.ended)
			}
			if n := value(m.opts.Metrics.HoldOverflow); int(n) != c.ended {
				t.Errorf("%v overflows counted, want %d", n, c.ended)
			}
		})
	}
	t.Run("what was read waits for nobody", func(t *testing.T) { // the inbox has a budget of its own
		m, _ := solo(t, Options{SlotBytes: 1000, Window: 8})
		boxes := bound(m, 1)
		a := slot(0, 0)
		m.Batch(producer, batched(1, 0, opens(a, 1), item(a, 1, big), item(a, 2, big), item(a, 4, big), item(a, 3, "y")))
		if s := got(boxes[0], false); s != strings.Join([]string{big, big, "y", big}, " ") || m.opts.Metrics.LiveSlots.Load() != 1 {
			t.Error("a full inbox ends a stream whose records are out of order")
		}
	})
}

// TestSequenceEnds goes over the end of both sequences.
func TestSequenceEnds(t *testing.T) {
	m, l := solo(t, Options{})
	boxes := bound(m, 1)
	a := slot(0, 0)
	o := opens(a, 1)
	o.FrameSeq = ^uint32(0) - 2
	m.Batch(producer, batched(1, ^uint32(0), o, item(a, ^uint32(0)-1, "a"), item(a, ^uint32(0), "b"), item(a, ^uint32(0), "c")))
	m.Batch(producer, batched(1, 0, item(a, ^uint32(0), "d")))
	if s := got(boxes[0], false); s != "a b c d" {
		t.Errorf("saw %q", s)
	}
	if n := value(m.opts.Metrics.SeqGaps); n != 0 {
		t.Errorf("%v gaps where none is", n)
	}
	for _, c := range []struct {
		seq  uint32
		gaps float64
	}{{1, 0}, {4, 2}, {2, 2}, {3, 2}, {5, 2}, {7, 3}} {
		if m.Batch(producer, batched(1, c.seq)); value(m.opts.Metrics.SeqGaps) != c.gaps {
			t.Errorf("batch %d: %v gaps, want %v", c.seq, value(m.opts.Metrics.SeqGaps), c.gaps)
		}
	}
	if s := l.all(t); s != "" {
		t.Errorf("answered %q", s)
	}
}

// TestReuse opens an index 300 times, with records of old generations in between.
func TestReuse(t *testing.T) {
	m, l := solo(t, Options{})
	for i := range 300 {
		session := uint64(i + 1)
		box := &Inbox{}
		m.Bind(&Bind{Anchor: session, Session: session, Inbox: box})
		id, old := slot(3, i%256), slot(3, (i+255)%256)
		m.Batch(producer, batched(1, uint32(i), opens(id, session), item(old, 1, "no"), item(id, 1, "x"),
			frame(id, 2, wire.FrameFinalized), closes(old, 2, wire.PeerGone), closes(id, 3, wire.TerminalSent), item(id, 4, "no")))
		if s := got(box, true); s != "x finalized" {
			t.Fatalf("generation %d sees %q", i, s)
		}
	}
	if n := value(m.opts.Metrics.GenerationMismatch); n != 600 {
		t.Errorf("%v of other generations, want 600", n)
	}
	m.sound(t)
	empty(t, m)
	if s := l.all(t); s != "" {
		t.Errorf("answered %q", s)
	}
}

// TestRefusedOpens has a peer open streams without end while nothing can be written.
func TestRefusedOpens(t *testing.T) {
	m, l := solo(t, Options{MaxBatch: 2000})
	p := m.peers[producer]
	for i := range 3 * mostClosing {
		m.Batch(producer, batched(1, uint32(i), opens(slot(i, 0), 9), opens(slot(i, 0), 9)))
	}
	if n := len(p.out.closes); n != mostClosing {
		t.Errorf("%d closes wait, want %d", n, mostClosing)
	}
	if cap(p.in.slots) > 0 {
		t.Errorf("room for %d slots though none is open", cap(p.in.slots))
	}
	if n := value(m.opts.Metrics.ControlRefused); n == 0 {
		t.Error("refusals that are not told are not counted")
	}
	a := slot(0, 1) // what was once open is closed all the same
	boxes := bound(m, 1)
	m.Batch(producer, batched(1, 1<<16, opens(a, 1), item(a, 2, "x"), item(a, 99, "no")))
	if s := got(boxes[0], false); s != "dropped" {
		t.Errorf("saw %q", s)
	}
	var ids []wire.SlotID
	for s := l.take(t); s != nil; s = l.take(t) {
		if s.size > 2000 {
			t.Errorf("a batch of %d bytes", s.size)
		}
		for _, r := range s.records {
			ids = append(ids, r.Slot)
		}
	}
	if len(ids) != mostClosing+1 || !slices.Contains(ids, a) {
		t.Errorf("%d closes left, want %d with the live slot's", len(ids), mostClosing+1)
	}
	m.steps(t, 1)
	if p.out.closes != nil {
		t.Error("the memory of the closes is kept")
	}
}

// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// produces opens streams of sessions 1 to n to the peer; the opens have left.
func produces(t testing.TB, m *Mux, l *tap, n int, terms Terms, h Hooks) (owners []*Owner) {
	t.Helper()
	for i := range n {
		terms.Session, terms.Anchor = uint64(i+1), uint64(i+1)
		o, err := m.peers[producer].begin(terms, h)
		if err != nil {
			t.Fatal(err)
		}
		owners = append(owners, o)
	}
	l.all(t)
	return owners
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t testing.TB, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func TestCredit(t *testing.T) {
	m, l := solo(t, Options{})
	rooms := 0
	o := produces(t, m, l, 1, Terms{Credit: 2}, Hooks{Room: func() { rooms++ }})[0]
	must(t, o.Item([]byte("a")))
	must(t, o.Item([]byte("b")))
	for range 3 {
		wants(t, "without credit", o.Item([]byte("c")), ErrWouldBlock)
	}
	if n := value(m.opts.Metrics.CreditExhausted); n != 1 {
		t.Errorf("%v spells without credit are counted, want 1", n)
	}
	id := slot(0, 0)
	m.Batch(producer, batched(1, 0, credits(slot(0, 1), 7), credits(slot(1, 0), 7))) // other slots'
	wants(t, "with another's credit", o.Item([]byte("c")), ErrWouldBlock)
	m.Batch(producer, batched(1, 1, credits(id, 1)))
	if rooms != 1 {
		t.Errorf("told %d times, want 1", rooms)
	}
	must(t, o.Item([]byte("c")))
	wants(t, "without credit", o.Item([]byte("d")), ErrWouldBlock)
	m.Batch(producer, batched(1, 2, credits(id, 1<<31), credits(id, ^uint32(0)), credits(id, ^uint32(0))))
	if o.credit != 1<<31-1 {
		t.Errorf("grants add up to %d", o.credit)
	}
	o.credit = 0
	must(t, o.Finish(wire.FrameFinalized)) // the reserved one
	wants(t, "after the terminal", o.Finish(wire.FrameFinalized), ErrEnded)
	wants(t, "after the terminal", o.Item(nil), ErrEnded)
	if s := l.all(t); s != "data:0.0:a data:0.0:b data:0.0:c data:0.0:finalized close:0.0:terminal_sent" {
		t.Errorf("sent %q", s)
	}
	m.sound(t)
	empty(t, m)
}

// TestSeveral has a stream without credit beside others.
func TestSeveral(t *testing.T) {
	m, l := solo(t, Options{})
	o := produces(t, m, l, 3, Terms{Credit: 2}, Hooks{})
	for i, text := range []string{"a", "b", "c"} {
		for _, p := range o {
			if i < 2 {
				must(t, p.Item([]byte(text)))
			}
		}
	}
	m.Batch(producer, batched(1, 0, credits(slot(1, 0), 1)))
	wants(t, "starved", o[0].Item([]byte("c")), ErrWouldBlock)
	must(t, o[1].Item([]byte("c")))
	must(t, o[2].Finish(wire.FrameDetached))
	s := l.take(t)
	if len(s.records) != 9 || l.take(t) != nil {
		t.Errorf("%d records share the batch, want 9", len(s.records))
	}
	seqs := map[wire.SlotID]uint32{}
	for _, r := range s.records {
		if seqs[r.Slot]++; r.FrameSeq != seqs[r.Slot] {
			t.Errorf("slot %d has number %d, want %d", r.Slot, r.FrameSeq, seqs[r.Slot])
		}
	}
}

// TestCaps cuts batches at the bytes that they may have.
func TestCaps(t *testing.T) {
	for _, limit := range []int{29, 64, 200, 1000} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			m, l := solo(t, Options{MaxBatch: limit, Window: 1000})
			bound(m, 200)
			o := produces(t, m, l, 4, Terms{Credit: 1000}, Hooks{})
			// Something to say of our slots, too: many refusals and much credit.
			for i := range 20 {
				m.Batch(producer, batched(1, uint32(i), opens(slot(i, 0), uint64(i+1)), frame(slot(i, 0), 1, wire.FrameHeartbeat), opens(slot(300+i, 0), 999)))
			}
			large := bytes.Repeat([]byte("x"), 2*limit)
			n := 0
			for i := range 40 {
				b := []byte("small")
				if i%10 == 9 {
					b = large
				}
				if err := o[i%4].Item(b); err == nil {
					n++
				}
			}
			for _, p := range o {
				must(t, p.Finish(wire.FrameFinalized))
			}
			m.sound(t)
			seen, closes, last := 0, 0, wire.Record{}
			seq := uint32(0)
			for s := l.take(t); s != nil; s = l.take(t) {
				if seq > 0 && s.header.Seq != seq {
					t.Errorf("batch %d, want %d", s.header.Seq, seq)
				}
				seq = s.header.Seq + 1
				if s.size > limit && (len(s.records) > 1 && s.records[1].Type != wire.CloseSlot || len(s.records) > 2) {
					t.Errorf("a batch of %d bytes in %d records, limit %d", s.size, len(s.records), limit)
				}
				last = wire.Record{}
				for _, r := range s.records {
					switch {
					case r.Type == wire.Data:
						seen++
					case r.Type == wire.CloseSlot && wire.ParseClose(r.Body) == wire.TerminalSent:
						closes++
						if last.Slot != r.Slot || !wire.IsTerminal(last.Body) || last.FrameSeq+1 != r.FrameSeq {
							t.Errorf("a close comes after %s", say(&last))
						}
					}
					last = r
				}
			}
			if seen != n+4 || closes != 4 || n < 10 {
				t.Errorf("%d data records and %d closes left, want %d and 4", seen, closes, n+4)
			}
			m.sound(t)
		})
	}
}

// TestMostRecords fills a batch by count.
func TestMostRecords(t *testing.T) {
	m, _ := solo(t, Options{})
	b := &batch{}
	b.begin(m.envelope)
	b.count = wire.MaxRecords - 1
	if !b.fits(m.envelope, 13, 1, largestBatch) || b.fits(m.envelope, 13, 2, largestBatch) {
		t.Error("a batch does not end at the most records")
	}
}

func TestTooLarge(t *testing.T) {
	m, l := solo(t, Options{})
	o := produces(t, m, l, 1, Terms{Credit: 2}, Hooks{})[0]
	must(t, o.Item([]byte("a")))
	wants(t, "a record over the frame", o.Item(make([]byte, wire.MaxFrame)), ErrTooLarge)
	wants(t, "a terminal over the frame", o.Finish(make([]byte, wire.MaxFrame)), ErrTooLarge)
	must(t, o.Item([]byte("b")))
	must(t, o.Finish(wire.FrameFinalized))
	if s := l.all(t); s != "data:0.0:a data:0.0:b data:0.0:finalized close:0.0:terminal_sent" {
		t.Errorf("sent %q", s)
	}
	m.sound(t)
}

// TestFullQueue has a connection that takes nothing.
func TestFullQueue(t *testing.T) {
	m, l := solo(t, Options{MaxBatch: 1000, QueueBytes: 4000})
	rooms := 0
	o := produces(t, m, l, 2, Terms{Credit: 1 << 20}, Hooks{Room: func() { rooms++ }})
	var staged []string
	for i := 0; ; i++ {
		text := fmt.Sprint(i)
		if err := o[0].Item([]byte(text)); err != nil {
			wants(t, "into a full queue", err, ErrWouldBlock)
			break
		}
		staged = append(staged, "data:0.0:"+text)
	}
	p := m.peers[producer]
	if p.out.queued > 4000+2*1000 {
		t.Errorf("%d bytes wait", p.out.queued)
	}
	wants(t, "the other stream", o[1].Item([]byte("other")), ErrWouldBlock)
	must(t, o[1].Finish(wire.FrameFinalized)) // it waits for nothing
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	wants(t, "waiting", o[0].Wait(ctx), context.DeadlineExceeded)
	sent := []string{l.all(t)}
	if rooms != 2 { // the ended one is told too, at its end
		t.Errorf("told %d times, want 2", rooms)
	}
	must(t, o[0].Wait(t.Context()))
	must(t, o[0].Item([]byte("last")))
	sent = append(sent, l.all(t))
	want := strings.Join(staged, " ") + " data:1.0:finalized close:1.0:terminal_sent data:0.0:last"
	if s := strings.Join(sent, " "); s != want {
		t.Errorf("sent %q, want %q", s, want)
	}
	m.sound(t)
}

// TestOpensWithoutEnd has streams open and end while the connection takes nothing.
func TestOpensWithoutEnd(t *testing.T) {
	m, _ := solo(t, Options{MaxBatch: 1000, QueueBytes: 4000})
	p := m.peers[producer]
	var err error
	for range 10_000 {
		var o *Owner
		if o, err = p.begin(Terms{Credit: 1, Version: wire.V2}, Hooks{}); err != nil {
			break
		}
		must(t, o.Finish(wire.FrameFinalized))
	}
	wants(t, "opening", err, ErrTooMany)
	if most := mostQueued*4000 + 1000; p.out.queued > most {
		t.Errorf("%d bytes wait, want at most %d", p.out.queued, most)
	}
}

// TestSlots runs out of them.
func TestSlots(t *testing.T) {
	m, l := solo(t, Options{QueueBytes: 8 << 20})
	p := m.peers[producer]
	var o *Owner
	for range wire.MaxIndex {
		var err error
		o, err = p.begin(Terms{Credit: 1}, Hooks{})
		must(t, err)
	}
	_, err := p.begin(Terms{Credit: 1}, Hooks{})
	wants(t, "opening one too many", err, ErrTooMany)
	must(t, o.Finish(wire.FrameFinalized))
	if o, err = p.begin(Terms{Credit: 1}, Hooks{}); err != nil || o.id != slot(wire.MaxIndex-1, 1) {
		t.Errorf("the freed slot is %v: %v", o, err)
	}
	for l.take(t) != nil {
	}
}

// TestConsumerSays has the receiver of a slot end it or ask for its end.
func TestConsumerSays(t *testing.T) {
	id := slot(0, 0)
	for _, c := range []struct {
		name    string
		records []wire.Record
		ends    int
		stops   int
	}{
		{"unknown slot", []wire.Record{closes(id, 0, wire.UnknownSlot)}, 1, 0},
		{"protocol error", []wire.Record{closes(id, 0, wire.ProtocolError)}, 1, 0},
		{"twice", []wire.Record{closes(id, 0, wire.ProtocolError), closes(id, 0, wire.UnknownSlot), lifecycles(id, 1, wire.Cancel)}, 1, 0},
		{"cancel", []wire.Record{lifecycles(id, 1, wire.Cancel)}, 1, 0},
		{"cancel of another session", []wire.Record{lifecycles(id, 2, wire.Cancel)}, 0, 0},
		{"stop", []wire.Record{lifecycles(id, 1, wire.Stop)}, 0, 1},
		{"stop of another session", []wire.Record{lifecycles(id, 2, wire.Stop)}, 0, 0},
		{"stop and cancel", []wire.Record{lifecycles(id, 1, wire.Stop), lifecycles(id, 1, wire.Cancel)}, 1, 1},
		{"cancel, then stop", []wire.Record{lifecycles(id, 1, wire.Cancel), lifecycles(id, 1, wire.Stop)}, 1, 0},
		{"other generation", []wire.Record{closes(slot(0, 1), 0, wire.UnknownSlot), lifecycles(slot(0, 9), 1, wire.Cancel)}, 0, 0},
		{"owner's reasons are not its", []wire.Record{closes(id, 0, wire.TerminalSent), closes(id, 0, wire.PeerGone)}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, l := solo(t, Options{})
			ends, stops := 0, 0
			o := produces(t, m, l, 1, Terms{Credit: 9}, Hooks{
				Stop: func() { stops++ },
				End:  func(err error) { wants(t, "the end", err, ErrCancelled); ends++ },
			})[0]
			must(t, o.Item([]byte("a")))
			m.Batch(producer, batched(1, 0, c.records...))
			if ends != c.ends || stops != c.stops {
				t.Errorf("told %d ends and %d stops, want %d and %d", ends, stops, c.ends, c.stops)
			}
			var want error
			if c.ends > 0 {
				want = ErrCancelled
			}
			wants(t, "then", o.Item([]byte("b")), want)
			wants(t, "its error", o.Err(), want)
			if o.Cancelled(); ends != 1 {
				t.Errorf("told of %d ends, want 1", ends)
			}
			m.sound(t)
			if s := l.all(t); c.ends > 0 && s != "data:0.0:a" {
				t.Errorf("sent %q", s)
			}
			empty(t, m)
		})
	}
}

// TestFlushPolicies takes at once what a policy lets go.
func TestFlushPolicies(t *testing.T) {
	auto, linger, manual := Flush{}, Flush{Linger: time.Hour}, Flush{Manual: true}
	big := bytes.Repeat([]byte("x"), 300)
	for _, c := range []struct {
		name   string
		flush  Flush
		do     func(m *Mux, o, other *Owner)
		kicked bool
		sent   int // records
	}{
		{"auto writes data", auto, func(*Mux, *Owner, *Owner) {}, true, 2},
		{"linger holds data", linger, func(*Mux, *Owner, *Owner) {}, false, 0},
		{"manual holds data", manual, func(*Mux, *Owner, *Owner) {}, false, 0},
		{"flush under manual", manual, func(_ *Mux, o, _ *Owner) { o.Peer().Flush() }, true, 2},
		{"flush under linger", linger, func(_ *Mux, o, _ *Owner) { o.Peer().Flush() }, true, 2},
		{"linger is over", linger, func(_ *Mux, o, _ *Owner) { o.p.lingered() }, true, 2},
		{"terminal under manual", manual, func(_ *Mux, _, other *Owner) { must(t, other.Finish(wire.FrameDropped)) }, true, 4},
		{"terminal under linger", linger, func(_ *Mux, _, other *Owner) { must(t, other.Finish(wire.FrameDropped)) }, true, 4},
		{"open under manual", manual, func(_ *Mux, o, _ *Owner) { _, err := o.Peer().begin(Terms{Credit: 1}, Hooks{}); must(t, err) }, true, 3},
		{"close under manual", manual, func(m *Mux, _, _ *Owner) { m.Batch(producer, batched(1, 0, opens(slot(0, 0), 99))) }, true, 3},
		{"credit under manual", manual, func(m *Mux, o, _ *Owner) {
			bound(m, 1)
			m.Batch(producer, batched(1, 0, opens(slot(0, 0), 1), frame(slot(0, 0), 1, wire.FrameHeartbeat)))
			o.p.visitNow()
		}, true, 3},
		{"full batch under manual", manual, func(_ *Mux, o, _ *Owner) { must(t, o.Item(big)); must(t, o.Item(big)) }, true, 3},
		{"record over a batch under manual", manual, func(_ *Mux, o, _ *Owner) { must(t, o.Item(append(big, big...))) }, true, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, l := solo(t, Options{Flush: c.flush, MaxBatch: 400, Window: 1})
			o := produces(t, m, l, 2, Terms{Credit: 9}, Hooks{})
			before := l.kicks.Load()
			must(t, o[0].Item([]byte("a")))
			must(t, o[1].Item([]byte("b")))
			c.do(m, o[0], o[1])
			if kicked := l.kicks.Load() > before; kicked != c.kicked {
				t.Errorf("the connection is told: %v, want %v", kicked, c.kicked)
			}
			n := 0
			for s := l.take(t); s != nil; s = l.take(t) {
				n += len(s.records)
			}
			if n != c.sent {
				t.Errorf("%d records left, want %d", n, c.sent)
			}
			m.sound(t)
			// The next record is held again, or not, as before.
			before = l.kicks.Load()
			must(t, o[0].Item([]byte("c")))
			if kicked := l.kicks.Load() > before; c.name[:4] != "full" && kicked != (c.flush == auto) {
				t.Errorf("afterwards the connection is told: %v", kicked)
			}
		})
	}
	t.Run("a flush of nothing", func(t *testing.T) {
		m, l := solo(t, Options{Flush: manual})
		before := l.kicks.Load()
		m.peers[producer].Flush()
		if l.kicks.Load() != before || l.take(t) != nil {
			t.Error("something is written")
		}
	})
	t.Run("one kick for many records", func(t *testing.T) {
		m, l := solo(t, Options{})
		o := produces(t, m, l, 1, Terms{Credit: 1000}, Hooks{})[0]
		before := l.kicks.Load()
		for range 100 {
			must(t, o.Item([]byte("a")))
			o.Peer().Flush()
		}
		if n := l.kicks.Load() - before; n != 1 {
			t.Errorf("told %d times", n)
		}
	})
	t.Run("linger in time", func(t *testing.T) {
		m, l := solo(t, Options{Flush: Flush{Linger: time.Millisecond}})
		o := produces(t, m, l, 1, Terms{Credit: 1000}, Hooks{})[0]
		before := l.kicks.Load()
		must(t, o.Item([]byte("a")))
		for l.kicks.Load() == before {
			time.Sleep(time.Millisecond)
		}
		if s := l.all(t); s != "data:0.0:a" {
			t.Errorf("sent %q", s)
		}
	})
}

// TestBeats passes time over streams that send and streams that do not.
func TestBeats(t *testing.T) {
	m, l := solo(t, Options{Flush: Flush{Manual: true}})
	o := produces(t, m, l, 2, Terms{Credit: 3, Beat: 5}, Hooks{})
	quiet := produces(t, m, l, 1, Terms{Credit: 3}, Hooks{})[0]
	m.steps(t, 5) // the opens count
	m.steps(t, 4)
	must(t, o[1].Item([]byte("a")))
	if s := l.all(t); s != "" {
		t.Errorf("sent %q", s)
	}
	m.steps(t, 1)
	if s := l.all(t); s != "data:1.0:a data:0.0:heartbeat" {
		t.Errorf("sent %q", s)
	}
	m.steps(t, 5)
	if s := l.all(t); s != "data:0.0:heartbeat data:1.0:heartbeat" && s != "data:0.0:heartbeat" {
		t.Errorf("sent %q", s)
	}
	m.steps(t, 50)
	l.all(t)
	if o[0].credit != 0 || o[1].credit != 0 || quiet.credit != 3 {
		t.Errorf("credit %d, %d and %d is left", o[0].credit, o[1].credit, quiet.credit)
	}
	m.steps(t, 50)
	if s := l.all(t); s != "" {
		t.Errorf("beats without credit: %q", s)
	}
	must(t, o[0].Finish(wire.FrameFinalized))
	m.sound(t)
}

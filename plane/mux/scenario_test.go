// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// stamp is a record that says which stream it is of, and its place there.
func stamp(b []byte, stream, i int) []byte {
	b = binary.BigEndian.AppendUint64(b[:0], uint64(stream))
	return binary.BigEndian.AppendUint64(b, uint64(i))
}

// check reads a stream to its end: each record is its own and in its place. It returns
// how many came, and the end.
func (r *reader) check(t testing.TB, stream int) (n int, end wire.FrameKind) {
	t.Helper()
	for ; ; n++ {
		kind, body := r.next(t)
		if kind != wire.Item {
			return n, kind
		}
		item, err := wire.ItemBytes(body)
		if err != nil || binary.BigEndian.Uint64(item) != uint64(stream) || binary.BigEndian.Uint64(item[8:]) != uint64(n) {
			t.Errorf("stream %d, record %d is %x: %v", stream, n, item, err)
			return n, kind
		}
	}
}

// feed sends records until they are sent or the stream has ended, which it returns.
func feed(t testing.TB, o *Owner, stream, records int) error {
	var b []byte
	for i := range records {
		b = stamp(b, stream, i)
		for err := o.Item(b); err != nil; err = o.Item(b) {
			if !errors.Is(err, ErrWouldBlock) {
				return err
			}
			if err := o.Wait(t.Context()); err != nil {
				return err
			}
		}
	}
	return o.Finish(wire.FrameFinalized)
}

// TestStalledConsumer never reads one stream, and the others do not notice.
func TestStalledConsumer(t *testing.T) {
	_, a, b := pair2(t, Options{Window: 16})
	stalled, r, bind := open(t, a, b, 1, Hooks{})
	var wg sync.WaitGroup
	wg.Go(func() { wants(t, "the stalled stream", feed(t, stalled, 1, 1<<20), ErrCancelled) })
	for s := range 8 {
		o, r, _ := open(t, a, b, uint64(s+2), Hooks{})
		wg.Go(func() { must(t, feed(t, o, s+2, 2000)) })
		wg.Go(func() {
			if n, end := r.check(t, s+2); n != 2000 || end != wire.Finalized {
				t.Errorf("stream %d ends after %d with %v", s+2, n, end)
			}
		})
	}
	for done := make(chan struct{}); done != nil; {
		go func() { wg.Wait(); close(done) }()
		for b.opts.Metrics.LiveSlots.Load() > 1 {
			time.Sleep(time.Millisecond)
		}
		r.box.mu.Lock()
		if n := r.box.n; n > 16 {
			t.Errorf("%d records wait for who never reads, window 16", n)
		}
		r.box.mu.Unlock()
		b.Cancel(bind)
		<-done
		done = nil
	}
	empty(t, a, b)
}

// TestMany opens and ends 8,192 streams, again, and finds everything as before.
func TestMany(t *testing.T) {
	const streams = 8192
	_, a, b := pair2(t, Options{})
	var seen []int
	var done chan struct{}
	var left atomic.Int32
	poller := NewPoller(each(func(box *Inbox, tag uint32, frame []byte) {
		s := box.Owner.(int)
		kind, body, _ := wire.ParseStreamFrame(frame)
		if kind == wire.Finalized && seen[s] == 3 {
			box.Release(tag)
			if left.Add(-1) == 0 {
				close(done)
			}
			return
		}
		item, err := wire.ItemBytes(body)
		if err != nil || binary.BigEndian.Uint64(item) != uint64(s) || binary.BigEndian.Uint64(item[8:]) != uint64(seen[s]) {
			t.Errorf("stream %d sees %v %x", s, kind, item)
		}
		seen[s]++
	}))
	serve(t, poller)
	run := func() {
		seen, done = make([]int, streams+1), make(chan struct{})
		left.Store(streams)
		owners := make([]*Owner, streams)
		for i := range owners {
			o, r, _ := open(t, a, b, uint64(i+1), Hooks{})
			r.box.Owner = i + 1
			r.box.Serve(poller, i%2 == 0)
			owners[i] = o
		}
		var wg sync.WaitGroup
		for part := range 4 {
			wg.Go(func() {
				for i := part * streams / 4; i < (part+1)*streams/4; i++ {
					must(t, feed(t, owners[i], i+1, 3))
				}
			})
		}
		select {
		case <-done:
		case <-t.Context().Done():
		}
		wg.Wait()
		empty(t, a, b)
	}
	run()
	goroutines := runtime.NumGoroutine()
	for range 3 {
		run()
	}
	for poller.active.Load().hand.Load() != nil {
		time.Sleep(time.Millisecond) // it is about to give back the last run
	}
	for _, m := range []*Mux{a, b} {
		m.sound(t)
		m.mu.Lock()
		peers := slices.Collect(maps.Values(m.peers))
		m.mu.Unlock() // the sweep needs it
		for _, p := range peers {
			for i := 0; i < 1000 && (!p.idle() || p.asked.Load()); i++ {
				time.Sleep(time.Millisecond)
			}
			p.in.mu.Lock()
			p.out.mu.Lock()
			if !p.idle() || len(p.out.owners) > streams || len(p.out.free) != len(p.out.owners) || len(p.out.closes)+len(p.out.waiting)+p.out.queued > 0 || p.in.held > 0 {
				t.Errorf("left over: drained %v, %d slots, %d free, %d closes, %d wait, %d bytes queued, %d held", !p.idle(),
					len(p.out.owners), len(p.out.free), len(p.out.closes), len(p.out.waiting), p.out.queued, p.in.held)
			}
			p.out.mu.Unlock()
			p.in.mu.Unlock()
		}
		for i := range m.binds.parts {
			if n := len(m.binds.parts[i].wait); n > 0 {
				t.Errorf("%d binds are left", n)
			}
		}
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines, %d before", n, goroutines)
	}
}

// TestCloseUnderLoad closes either side while streams run, and opens race with it.
func TestCloseUnderLoad(t *testing.T) {
	for _, first := range []string{"producer", "consumer", "both"} {
		t.Run(first, func(t *testing.T) {
			_, a, b := pair2(t, Options{Window: 4})
			var wg sync.WaitGroup
			for s := range 20 {
				o, r, bind := open(t, a, b, uint64(s+1), Hooks{})
				wg.Go(func() { _ = feed(t, o, s+1, 1<<30) })
				wg.Go(func() {
					r.check(t, s+1)
					b.Cancel(bind)
				})
			}
			time.Sleep(2 * time.Millisecond)
			switch first {
			case "producer":
				a.Close()
				b.Close()
			case "consumer":
				b.Close()
				a.Close()
			default:
				wg.Go(a.Close)
				b.Close()
			}
			wg.Wait()
			empty(t, a, b)
		})
	}
}

// TestWoken has owners blocked in Wait for each reason there is, woken by what ends it.
func TestWoken(t *testing.T) {
	id := slot(0, 0)
	for _, c := range []struct {
		name string
		o    Options
		wake func(*Mux, *tap)
		want error // of the next record
	}{
		{"credit", Options{}, func(m *Mux, _ *tap) { m.Batch(producer, batched(1, 0, credits(id, 1))) }, nil},
		{"room", Options{MaxBatch: 100, QueueBytes: 1}, func(_ *Mux, l *tap) {
			for l.take(t) != nil {
			}
		}, nil},
		{"close", Options{}, func(m *Mux, _ *tap) { m.Batch(producer, batched(1, 0, closes(id, 0, wire.UnknownSlot))) }, ErrCancelled},
		{"cancel", Options{}, func(m *Mux, _ *tap) { m.Batch(producer, batched(1, 0, lifecycles(id, 1, wire.Cancel))) }, ErrCancelled},
		{"lost", Options{}, func(_ *Mux, l *tap) { l.down(errors.New("reset")) }, ErrPeerLost},
		{"the mux ends", Options{}, func(m *Mux, _ *tap) { m.Close() }, ErrClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, l := solo(t, c.o)
			credit := uint32(1)
			if c.o.QueueBytes > 0 {
				credit = 1 << 20
			}
			o := produces(t, m, l, 1, Terms{Credit: credit}, Hooks{})[0]
			for o.Item([]byte("x")) == nil {
			}
			woken := make(chan error)
			go func() { woken <- o.Wait(t.Context()) }()
			select {
			case <-woken:
				t.Fatal("woken for nothing")
			case <-time.After(5 * time.Millisecond):
			}
			c.wake(m, l)
			must(t, <-woken)
			wants(t, "then", o.Item([]byte("y")), c.want)
		})
	}
}

// TestCancelRaces has consumers cancel and stop while everything runs.
func TestCancelRaces(t *testing.T) {
	_, a, b := pair2(t, Options{Window: 4})
	var wg sync.WaitGroup
	for s := range 200 {
		var ended, gone atomic.Int32
		bind := &Bind{Anchor: uint64(s + 1), Session: uint64(s + 1), Inbox: &Inbox{}, Ended: func() { gone.Add(1) }}
		b.Bind(bind)
		p, err := a.Peer(consumer, wire.V2)
		must(t, err)
		o, err := p.begin(Terms{Anchor: bind.Anchor, Session: bind.Session, Credit: 4, Version: wire.V2}, Hooks{End: func(error) { ended.Add(1) }})
		must(t, err)
		wg.Go(func() {
			if err := feed(t, o, s+1, 1<<30); !errors.Is(err, ErrCancelled) {
				t.Errorf("stream %d: %v", s+1, err)
			}
		})
		wg.Go(func() {
			time.Sleep(time.Duration(s%10) * 300 * time.Microsecond)
			b.Stop(bind)
			b.Cancel(bind)
			b.Cancel(bind)
			bind.Inbox.Close()
		})
		defer func() {
			for i := 0; i < 1000 && ended.Load() == 0; i++ { // the hook runs after the slot is gone
				time.Sleep(time.Millisecond)
			}
			if ended.Load() != 1 || gone.Load() > 1 {
				t.Errorf("stream %d ends %d times at the producer and %d at the consumer", s+1, ended.Load(), gone.Load())
			}
		}()
	}
	wg.Wait()
	empty(t, a, b)
}

// TestMetricsReturn scrapes the gauges after streams have ended.
func TestMetricsReturn(t *testing.T) {
	m, l := solo(t, Options{})
	bound(m, 1)
	o := produces(t, m, l, 1, Terms{Credit: 4}, Hooks{})[0]
	must(t, o.Item([]byte("x")))
	m.Batch(producer, batched(1, 0, opens(slot(0, 0), 1), item(slot(0, 0), 3, "x")))
	is := func(live, held int64, staged int) {
		t.Helper()
		g := m.opts.Metrics
		if g.LiveSlots.Load() != live || g.Held.Load() != held || m.staged() != staged {
			t.Errorf("%d slots, %d held, %d staged, want %d, %d, %d", g.LiveSlots.Load(), g.Held.Load(), m.staged(), live, held, staged)
		}
	}
	is(2, 1, 1)
	must(t, o.Finish(wire.FrameFinalized))
	m.Batch(producer, batched(2, 0))
	is(0, 0, 3)
	if s := l.all(t); s != "data:0.0:x data:0.0:finalized close:0.0:terminal_sent" {
		t.Errorf("sent %q", s)
	}
	is(0, 0, 0)
	for name, want := range map[string]float64{"data": 2, "open": 1, "close": 1} {
		got := map[string]float64{"data": value(m.opts.Metrics.sentData), "open": value(m.opts.Metrics.sentOpen), "close": value(m.opts.Metrics.sentClose)}[name]
		if got != want {
			t.Errorf("%v records of %s are counted, want %v", got, fmt.Sprint(name), want)
		}
	}
	if n := value(m.opts.Metrics.wakesOpen) + value(m.opts.Metrics.wakesFrame); n != 2 {
		t.Errorf("%v wakes are counted, want 2", n)
	}
}

// TestFlushed waits for what a policy holds.
func TestFlushed(t *testing.T) {
	_, a, b := pair2(t, Options{Flush: Flush{Manual: true}})
	o, r, _ := open(t, a, b, 1, Hooks{})
	must(t, o.Item(stamp(nil, 1, 0)))
	must(t, a.Flushed(t.Context()))
	if n := a.staged(); n != 0 {
		t.Errorf("%d records are staged still", n)
	}
	must(t, o.Finish(wire.FrameFinalized))
	if n, end := r.check(t, 1); n != 1 || end != wire.Finalized {
		t.Errorf("the stream ends after %d with %v", n, end)
	}
	empty(t, a, b)
}

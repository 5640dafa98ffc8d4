// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// each is a Handler that is told of each frame.
type each func(b *Inbox, tag uint32, frame []byte)

func (h each) Frame(b *Inbox, tag uint32, frame []byte) { h(b, tag, frame) }

func (h each) Look(b *Inbox, f *Frames) {
	for b.Take(f); f.N > 0; {
		frame, tag, _ := f.Next()
		h(b, tag, frame)
		drained(b, f, tag, 1, len(frame))
	}
}

// serve runs the poller until the test ends.
func serve(t testing.TB, p *Poller) context.Context {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("the poller ends with %v", err)
		}
	})
	return ctx
}

// TestServe serves inboxes that others fill, some of which get a poller only now.
func TestServe(t *testing.T) {
	const boxes, n = 16, 3000
	var list [boxes]Inbox
	var seen [boxes]int
	done := make(chan struct{})
	var left atomic.Int32
	left.Store(boxes)
	p := NewPoller(each(func(b *Inbox, _ uint32, frame []byte) {
		i := b.Owner.(int)
		if got := int(binary.BigEndian.Uint32(frame)); got != seen[i] {
			t.Errorf("inbox %d: %d comes where %d should", i, got, seen[i])
		}
		if seen[i]++; seen[i] == n {
			if left.Add(-1) == 0 {
				close(done)
			}
		}
	}))
	serve(t, p)
	var wg sync.WaitGroup
	for i := range list {
		list[i].Owner = i
		wg.Go(func() {
			for k := range n {
				if k == n/16*i {
					list[i].Serve(p, false)
				}
				put(&list[i], 0, number(k))
			}
		})
	}
	wg.Wait()
	<-done
}

func TestPollerContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	p := NewPoller(each(func(*Inbox, uint32, []byte) { t.Error("it serves after its end") }))
	var b Inbox
	put(&b, 0, number(1))
	b.Serve(p, false)
	wants(t, "a poller whose context is over", p.Run(ctx), context.Canceled)
}

// TestStuck has a handler be stuck with some streams again and again, and another yield
// in the midst, while records come: each stream is seen in its order by one goroutine at a
// time, the others go on, and all credit returns.
func TestStuck(t *testing.T) {
	const streams, stuck, records = 64, 5, 300
	_, a, b := pair2(t, Options{Window: 16})
	var seen, inside [streams + 1]atomic.Int32
	var waits atomic.Int32
	others, all := make(chan struct{}), make(chan struct{})
	var left, slow atomic.Int32
	left.Store(streams)
	slow.Store(streams - stuck)
	hold := make(chan struct{})
	p := NewPoller(each(func(box *Inbox, tag uint32, frame []byte) {
		s := box.Owner.(int)
		if inside[s].Add(1) != 1 {
			t.Errorf("stream %d is served twice at a time", s)
		}
		defer inside[s].Add(-1)
		kind, body, _ := wire.ParseStreamFrame(frame)
		if kind == wire.Finalized {
			if seen[s].Load() != records {
				t.Errorf("stream %d ends after %d", s, seen[s].Load())
			}
			box.Release(tag)
			if s > stuck && slow.Add(-1) == 0 {
				close(others)
			}
			if left.Add(-1) == 0 {
				close(all)
			}
			return
		}
		item, err := wire.ItemBytes(body)
		n := seen[s].Add(1) - 1
		if err != nil || binary.BigEndian.Uint64(item) != uint64(s) || binary.BigEndian.Uint64(item[8:]) != uint64(n) {
			t.Errorf("stream %d sees %x where its record %d is due", s, item, n)
		}
		switch {
		case s <= stuck && n == int32(s): // until the others are through
			waits.Add(1)
			<-hold
		case s <= stuck && n%50 == 0:
			time.Sleep(3 * stuckAfter)
		case n%10 == 0:
			runtime.Gosched()
		}
	}))
	serve(t, p)
	var wg sync.WaitGroup
	for i := range streams {
		o, r, _ := open(t, a, b, uint64(i+1), Hooks{})
		r.box.Owner = i + 1
		r.box.Serve(p, i%3 != 0)
		wg.Go(func() { must(t, feed(t, o, i+1, records)) })
	}
	<-others
	if waits.Load() != stuck {
		t.Errorf("%d streams are stuck, want %d", waits.Load(), stuck)
	}
	close(hold)
	<-all
	wg.Wait()
	empty(t, a, b)
}

// TestRetire is one server that another takes over from, at each step.
func TestRetire(t *testing.T) {
	m, _ := solo(t, Options{})
	boxes := bound(m, 3)
	var said []string
	p := NewPoller(each(func(b *Inbox, _ uint32, frame []byte) { said = append(said, show(frame)) }))
	for _, b := range boxes {
		b.Serve(p, true)
	}
	var records []wire.Record
	for i := range boxes {
		records = append(records, opens(slot(i, 0), uint64(i+1)))
	}
	for seq := range uint32(2) {
		for i := range boxes {
			records = append(records, item(slot(i, 0), seq+1, string(rune('a'+i))+string(rune('1'+seq))))
		}
	}
	m.Batch(producer, batched(1, 0, records...))
	first := &server{list: p.ready.Take(nil), at: -1}
	r, _ := first.next()
	if len(r.items) != 6 {
		t.Fatalf("a run of %d", len(r.items))
	}
	// The first is in the midst of a1 when the second takes over.
	r.cursor.Add(1)
	second := first.retire()
	if first.left.box != boxes[0] || !boxes[0].busy.Load() {
		t.Error("the inbox of what it was stuck with is not busy")
	}
	r, _ = second.next()
	if !p.handle(second, r) {
		t.Error("the second loses its run")
	}
	if r, retired := first.next(); r != nil || !retired {
		t.Error("the first goes on")
	}
	p.finish(first)
	if got := strings.Join(said, " "); got != "b1 c1 b2 c2 a2" {
		t.Errorf("served %q", got)
	}
	if boxes[0].busy.Load() {
		t.Error("it stays busy")
	}
	peer := m.peers[producer]
	peer.in.mu.Lock()
	peer.account()
	for i, s := range peer.in.slots {
		if n := s.read + s.taken.Load(); n != 2 || s.buffered.Load()+int64(s.waiting) != 0 {
			t.Errorf("slot %d: %d handled, %d bytes left", i, n, s.buffered.Load()+int64(s.waiting))
		}
	}
	peer.in.mu.Unlock()
}

// TestUnwanted has a consumer leave while its frames are on the way to it.
func TestUnwanted(t *testing.T) {
	m, l := solo(t, Options{})
	box := bound(m, 1)[0]
	p := NewPoller(each(func(_ *Inbox, _ uint32, frame []byte) { t.Errorf("%s is served", show(frame)) }))
	box.Serve(p, true)
	m.Batch(producer, batched(1, 0, opens(slot(0, 0), 1), item(slot(0, 0), 1, "x"), item(slot(0, 0), 2, "y")))
	box.Close()
	s := &server{list: p.ready.Take(nil), at: -1}
	r, _ := s.next()
	if !p.handle(s, r) {
		t.Error("the run is lost")
	}
	if s := l.all(t); s != "close:0.0:unknown_slot" {
		t.Errorf("its owner is told %q", s)
	}
	m.sound(t)
}

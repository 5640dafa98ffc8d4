// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/wire"
	"github.com/velo-agent/velo-agent/tests/bench"
)

// open begins a stream by ticket.
func open(t testing.TB, from, to *site, o plane.AnchorOptions) (*plane.Sender, *plane.Anchor) {
	t.Helper()
	a, err := to.NewAnchor(o)
	if err != nil {
		t.Fatal(err)
	}
	ticket, err := a.Ticket(0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := from.Open(a.Handle(), ticket)
	for until := time.Now().Add(patience); errors.Is(err, plane.ErrTooMany) && time.Now().Before(until); { // much waits for the peer
		time.Sleep(time.Millisecond)
		s, err = from.Open(a.Handle(), ticket)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s, a
}

// fill sends until there is no room, and says how many records there was room for.
func fill(t testing.TB, s *plane.Sender, size int) (n int) {
	t.Helper()
	b := make([]byte, size)
	for {
		err := s.TrySend(b)
		if errors.Is(err, plane.ErrWouldBlock) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
}

// TestStuckConsumer measures 50 streams beside one whose consumer never reads, and without
// it, in turns.
func TestStuckConsumer(t *testing.T) {
	watch(t)
	const streams = 50
	records, rounds := pick(2000, 8000), pick(12, 40)
	producer, consumer := pair(t, plane.Options{}, plane.Options{})
	slice := func(stuck bool) (perSecond float64) {
		if stuck {
			s, a := open(t, producer, consumer, plane.AnchorOptions{})
			defer s.Close()
			defer a.Close()
			if n := fill(t, s, recordSize); n != mux.DefaultWindow {
				t.Errorf("%d records went to who does not read, want the window of %d", n, mux.DefaultWindow)
			}
		}
		c := gather(t, producer, consumer, 0, streams, 0)
		c.makers.hasty.Store(true)
		began := time.Now()
		c.live(t)
		c.makers.goal.Store(uint64(records))
		consumers, _ := c.over(t)
		if consumers["complete"] != streams {
			t.Errorf("the streams end with %v", consumers)
		}
		return float64(c.took.Load()) / time.Since(began).Seconds()
	}
	slice(true)
	var with, without []float64
	for i := range rounds {
		for j := range 2 {
			if (i+j)%2 == 0 {
				with = append(with, slice(true))
			} else {
				without = append(without, slice(false))
			}
		}
	}
	ratio := bench.RatioOf(with, without)
	t.Logf("with a stuck stream %.4g records/s, without %.4g; ratio %v", bench.Median(with), bench.Median(without), ratio)
	if !raced && ratio.Misses(0.97, true) { // the race detector's timings mean nothing
		t.Errorf("a stuck stream leaves the others %v of their throughput, want 0.97 at least", ratio)
	}
	quiet(t, producer, consumer)
}

// TestStuckMemory: what waits for consumers that do not read is the window of each.
func TestStuckMemory(t *testing.T) {
	watch(t)
	const window, size = 8, 16 << 10
	streams := pick(256, 2048)
	producer, consumer := pair(t, plane.Options{}, plane.Options{Mux: mux.Options{Window: window}})
	before := heap()
	var senders []*plane.Sender
	var anchors []*plane.Anchor
	for range streams {
		s, a := open(t, producer, consumer, plane.AnchorOptions{})
		senders, anchors = append(senders, s), append(anchors, a)
	}
	b := make([]byte, size)
	for _, s := range senders {
		for range window {
			if err := s.Send(t.Context(), b); err != nil {
				t.Fatal(err)
			}
		}
		if n := fill(t, s, size); n != 0 {
			t.Fatalf("%d records went beyond the window", n)
		}
	}
	eventually(t, func() string {
		if n := producer.shows(t, "velo_streaming_mux_staged_records"); n != 0 {
			return fmt.Sprintf("%v records do not leave", n)
		}
		return ""
	})
	grown, most := heap()-before, streams*(window*size*2+8<<10)+16<<20 // buffers double
	t.Logf("%d streams of %d records of %d KiB hold %d MiB", streams, window, size>>10, grown>>20)
	if grown > most {
		t.Errorf("%d bytes are held, at most %d are in the budget", grown, most)
	}
	for i, a := range anchors {
		a.Close()
		senders[i].Close()
	}
	quiet(t, producer, consumer)
}

// TestStuckConnection: what waits for a peer that reads nothing at all is the budget of
// the connection, whatever the number of streams.
func TestStuckConnection(t *testing.T) {
	watch(t)
	const size = 16 << 10
	streams := pick(512, 4096)
	s := newScene(t, plane.Options{})
	var senders []*plane.Sender
	var anchors []*plane.Anchor
	before := heap()
	for range streams {
		sender, a := open(t, s.producer, s.consumer, plane.AnchorOptions{})
		senders, anchors = append(senders, sender), append(anchors, a)
	}
	resume := s.there.stall(t)
	sent := 0
	for range 3 { // what was refused may have room after the kernel has taken some
		for _, sender := range senders {
			sent += fill(t, sender, size)
		}
	}
	grown := heap() - before
	t.Logf("%d streams want to send %d MiB: %d MiB were taken, the heap has %d MiB more",
		streams, streams*mux.DefaultWindow*size>>20, sent*size>>20, grown>>20)
	if most := 24<<20 + streams*4<<10; grown > most {
		t.Errorf("%d bytes are held, at most %d are in the budget", grown, most)
	}
	resume()
	for i, a := range anchors {
		a.Close()
		senders[i].Close()
	}
	quiet(t, s.producer, s.consumer)
}

// TestStuckFunctions: a poller's functions that block stall their own streams.
func TestStuckFunctions(t *testing.T) {
	watch(t)
	const stuck = 64
	streams := pick(512, faultStreams)
	producer, consumer := pair(t, plane.Options{}, plane.Options{})
	ctx, stop := context.WithCancel(t.Context())
	release := make(chan struct{})
	var mu sync.Mutex
	blocked, ended := 0, map[bool]int{}
	p := plane.NewPoller(func(a *plane.Anchor, e plane.Event) {
		block := a.Value().(bool)
		mu.Lock()
		switch {
		case e.Ends():
			if e.Kind != wire.Finalized {
				t.Errorf("a stream ends with %v", e.Error())
			}
			ended[block]++
		case block:
			blocked++
			mu.Unlock()
			<-release
			return
		}
		mu.Unlock()
	})
	var wg sync.WaitGroup
	wg.Go(func() { _ = p.Run(ctx) })
	ms := newMakers()
	ms.goal.Store(100)
	for i := range streams + stuck {
		s, a := open(t, producer, consumer, plane.AnchorOptions{Value: i%((streams+stuck)/stuck) == 0 && i/((streams+stuck)/stuck) < stuck})
		p.Add(a)
		ms.add1(s, uint64(i))
	}
	wg.Go(func() { ms.run(ctx) })
	eventually(t, func() string {
		mu.Lock()
		defer mu.Unlock()
		if ended[false] < streams || blocked < stuck {
			return fmt.Sprintf("%d of %d streams have ended, %d functions block", ended[false], streams, blocked)
		}
		return ""
	})
	mu.Lock()
	if ended[true] > 0 || blocked != stuck {
		t.Errorf("of those that block %d have ended, and %d functions run", ended[true], blocked)
	}
	mu.Unlock()
	close(release)
	eventually(t, func() string {
		mu.Lock()
		defer mu.Unlock()
		if ended[true] < stuck {
			return fmt.Sprintf("%d of %d streams that were stuck have ended", ended[true], stuck)
		}
		return ""
	})
	stop()
	wg.Wait()
	quiet(t, producer, consumer)
}

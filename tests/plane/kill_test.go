// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/mux"
)

// TestProducerKilled: every consumer sees its stream dropped.
func TestProducerKilled(t *testing.T) {
	watch(t)
	n := pick(2048, faultStreams)
	s := start(t, plane.Options{Mux: mux.Options{Silence: silence}})
	other := play(t, "producer")
	var w words
	if err := hear(other.out, &w); err != nil {
		t.Fatal(err)
	}
	register(t, s, w.Peer)
	c := &crowd{takers: newTakers(), to: s}
	list, err := offers(c.takers, s.Node, n)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { c.run(ctx) })
	say(other.in, words{s.PeerInfo(), list})
	c.live(t)
	c.more(t, n)
	other.kill()
	eventually(t, func() string {
		if c.left.Load() > 0 {
			return "streams of a producer that was killed do not end"
		}
		return ""
	})
	stop()
	wg.Wait()
	c.tell(t)
	consumers := ends{}
	for _, k := range c.list {
		consumers[word(k.end)]++
	}
	only(t, "consumers", consumers, "dropped")
	rose(t, s, n, watchdog)
	rose(t, s, 1, epochDeaths)
	quiet(t, s)
}

// TestConsumerKilled: every producer is told, once.
func TestConsumerKilled(t *testing.T) {
	watch(t)
	n := pick(2048, faultStreams)
	s := start(t, plane.Options{Mux: mux.Options{Silence: silence}})
	other := play(t, "consumer")
	say(other.in, n)
	var w words
	if err := hear(other.out, &w); err != nil {
		t.Fatal(err)
	}
	register(t, s, w.Peer)
	ms := newMakers()
	if err := ms.take(s.Node, w.Offers); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { ms.run(ctx) })
	var begun int
	if err := hear(other.out, &begun); err != nil || begun != n {
		t.Fatalf("%d of %d streams have begun: %v", begun, n, err)
	}
	other.kill()
	wg.Wait()
	ms.tell(t)
	producers := ends{}
	for _, m := range ms.list {
		producers[word(m.err)]++
		select {
		case <-m.sender.Done():
		case <-time.After(patience):
			t.Fatal("a producer that waits is not told")
		}
		if err := m.sender.Err(); !errors.Is(err, plane.ErrPeerLost) {
			t.Fatalf("the sender says %v", err)
		}
		if err := m.sender.Send(ctx, nil); !errors.Is(err, plane.ErrPeerLost) && !errors.Is(err, plane.ErrClosed) {
			t.Fatalf("sending afterwards: %v", err)
		}
	}
	only(t, "producers", producers, "peer lost")
	for _, again := range ms.feeder.Ready(nil) {
		if ms.by[again].over {
			continue // told of room and of the end, as two things
		}
		t.Error("a producer whose stream is not over waits to be fed")
	}
	rose(t, s, 1, epochDeaths)
	quiet(t, s)
}

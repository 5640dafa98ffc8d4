// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// TestUnreliable runs streams over a connection that loses, repeats, reorders and cuts
// batches: no record is seen by another stream or out of its place, and each stream ends
// exactly once.
func TestUnreliable(t *testing.T) {
	for _, c := range []struct {
		name string
		pass func(r *rand.Rand, b []byte, later func([]byte)) [][]byte
		all  bool // nothing is lost
	}{
		{"reordered and repeated", func(r *rand.Rand, b []byte, later func([]byte)) [][]byte {
			switch r.IntN(3) {
			case 0:
				later(b)
				return [][]byte{}
			case 1:
				later(b)
			}
			return [][]byte{b}
		}, true},
		{"repeated", func(_ *rand.Rand, b []byte, _ func([]byte)) [][]byte { return [][]byte{b, b} }, true},
		{"dropped", func(r *rand.Rand, b []byte, _ func([]byte)) [][]byte {
			if r.IntN(40) == 0 {
				return [][]byte{}
			}
			return [][]byte{b}
		}, false},
		{"cut", func(r *rand.Rand, b []byte, _ func([]byte)) [][]byte {
			if r.IntN(40) == 0 {
				b = b[:r.IntN(len(b))]
			}
			return [][]byte{b}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNet()
			r := rand.New(rand.NewPCG(1, 2))
			var on atomic.Bool // once all are open
			var b *Mux
			later := func(p []byte) {
				p = slices.Clone(p)
				time.AfterFunc(time.Duration(r.IntN(2000))*time.Microsecond, func() { b.Batch(producer, p) })
			}
			n.pass[[2]wire.WorkerID{producer, consumer}] = func(b []byte) [][]byte {
				if !on.Load() {
					return [][]byte{b}
				}
				return c.pass(r, b, later)
			}
			o := Options{Window: 8, Silence: 2 * Tick}
			a := n.mux(t, producer, o)
			b = n.mux(t, consumer, o)
			const streams, records = 40, 200
			var fed, read sync.WaitGroup
			var whole, dropped atomic.Int64
			for s := range streams {
				o, r, _ := open(t, a, b, uint64(s+1), Hooks{})
				fed.Go(func() {
					for !on.Load() {
						time.Sleep(time.Millisecond)
					}
					_ = feed(t, o, s+1, records) // the consumer says how it went
				})
				read.Go(func() {
					n, end := r.check(t, s+1)
					switch {
					case end == wire.Finalized && n == records:
						whole.Add(1)
					case end == wire.Dropped && !c.all:
						dropped.Add(1)
					default:
						t.Errorf("stream %d ends after %d with %v", s+1, n, end)
					}
				})
				defer func() {
					if r.box.Take(&r.f) {
						t.Errorf("something comes after the end of stream %d", s+1)
					}
				}()
			}
			for b.opts.Metrics.LiveSlots.Load() < streams {
				time.Sleep(time.Millisecond)
			}
			on.Store(true)
			fed.Wait()
			b.Suspect(producer) // the last batch may be lost, and no other shows it
			read.Wait()
			t.Logf("%d streams were whole, %d were dropped", whole.Load(), dropped.Load())
			if c.all && whole.Load() != streams {
				t.Errorf("%d streams of %d were whole", whole.Load(), streams)
			}
			empty(t, a, b)
		})
	}
}

// TestBrokenLink breaks the producer's connection under live streams and mends it.
func TestBrokenLink(t *testing.T) {
	n, a, b := pair2(t, Options{Window: 8})
	const streams = 50
	ends := make(chan error, 2*streams)
	var readers []*reader
	var wg sync.WaitGroup
	for s := range streams {
		o, r, _ := open(t, a, b, uint64(s+1), Hooks{End: func(err error) { ends <- err }})
		readers = append(readers, r)
		wg.Go(func() { wants(t, "the stream", feed(t, o, s+1, 1<<30), ErrPeerLost) })
	}
	var read sync.WaitGroup
	for s, r := range readers {
		read.Go(func() {
			if n, end := r.check(t, s+1); end != wire.Dropped {
				t.Errorf("stream %d ends after %d with %v", s+1, n, end)
			}
		})
	}
	time.Sleep(5 * time.Millisecond)
	p := n.pipe(producer, consumer)
	p.broken.Store(true)
	wg.Wait()
	p.broken.Store(false)
	again, r, _ := open(t, a, b, 999, Hooks{}) // its epoch ends what the other side still has
	must(t, feed(t, again, 999, 3))
	if n, end := r.check(t, 999); n != 3 || end != wire.Finalized {
		t.Errorf("the next stream ends after %d with %v", n, end)
	}
	read.Wait()
	for range streams {
		wants(t, "the end", <-ends, ErrPeerLost) // the hook runs after the slot is gone
	}
	if len(ends) > 0 {
		t.Errorf("told %d ends too many", len(ends))
	}
	empty(t, a, b)
}

// TestBrokenReturn breaks the way of the credit alone, and mends it: nothing ends.
func TestBrokenReturn(t *testing.T) {
	n, a, b := pair2(t, Options{Window: 4})
	var wg sync.WaitGroup
	for s := range 10 {
		o, r, _ := open(t, a, b, uint64(s+1), Hooks{})
		wg.Go(func() { must(t, feed(t, o, s+1, 300)) })
		wg.Go(func() {
			if n, end := r.check(t, s+1); n != 300 || end != wire.Finalized {
				t.Errorf("stream %d ends after %d with %v", s+1, n, end)
			}
		})
	}
	for range 3 {
		time.Sleep(3 * time.Millisecond)
		if p := n.pipe(consumer, producer); p != nil {
			p.broken.Store(true)
			time.Sleep(3 * time.Millisecond)
			p.broken.Store(false)
		}
	}
	wg.Wait()
	empty(t, a, b)
}

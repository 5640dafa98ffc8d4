// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// reader takes frames of one inbox, one by one.
type reader struct {
	box *Inbox
	f   Frames
}

func (r *reader) next(t testing.TB) (kind wire.FrameKind, body []byte) {
	t.Helper()
	if r.f.N == 0 {
		must(t, r.box.Await(t.Context(), &r.f))
	}
	frame, tag, _ := r.f.Next()
	kind, body, err := wire.ParseStreamFrame(frame)
	if err != nil {
		t.Fatal(err)
	}
	if wire.IsTerminal(frame) {
		r.box.Release(tag)
	} else {
		drained(r.box, &r.f, tag, 1, len(frame))
	}
	return kind, body
}

// send waits for credit where it must.
func send(t testing.TB, o *Owner, b []byte) {
	t.Helper()
	for {
		err := o.Item(b)
		if err == nil {
			return
		}
		if !errors.Is(err, ErrWouldBlock) {
			t.Error(err)
			return
		}
		if err := o.Wait(t.Context()); err != nil {
			t.Error(err)
			return
		}
	}
}

// open begins a stream from a to b.
func open(t testing.TB, a, b *Mux, session uint64, h Hooks) (*Owner, *reader, *Bind) {
	t.Helper()
	bind := &Bind{Anchor: session, Session: session, Inbox: &Inbox{}}
	b.Bind(bind)
	p, err := a.Peer(b.opts.Worker, wire.V2)
	if err != nil {
		t.Fatal(err)
	}
	o, err := p.begin(Terms{Anchor: session, Session: session, Credit: b.Window(), Version: wire.V2}, h)
	if err != nil {
		t.Fatal(err)
	}
	return o, &reader{box: bind.Inbox}, bind
}

func TestStreams(t *testing.T) {
	for _, c := range []struct{ streams, records, window int }{{1, 200, 1}, {8, 200, 1}, {100, 1000, 32}, {3, 5000, 256}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			_, a, b := pair2(t, Options{Window: uint32(c.window)})
			var wg sync.WaitGroup
			for s := range c.streams {
				o, r, _ := open(t, a, b, uint64(s+1), Hooks{})
				wg.Go(func() {
					buf := make([]byte, 160)
					for i := range c.records {
						binary.BigEndian.PutUint64(buf, uint64(s))
						binary.BigEndian.PutUint64(buf[8:], uint64(i))
						send(t, o, buf)
					}
					if err := o.Finish(wire.FrameFinalized); err != nil {
						t.Error(err)
					}
				})
				wg.Go(func() {
					for i := range c.records {
						kind, body := r.next(t)
						item, err := wire.ItemBytes(body)
						if kind != wire.Item || err != nil || binary.BigEndian.Uint64(item) != uint64(s) || binary.BigEndian.Uint64(item[8:]) != uint64(i) {
							t.Errorf("stream %d, record %d is %v %x: %v", s, i, kind, item, err)
							return
						}
					}
					if kind, _ := r.next(t); kind != wire.Finalized {
						t.Errorf("stream %d ends with %v", s, kind)
					}
				})
			}
			wg.Wait()
			empty(t, a, b)
		})
	}
}

// empty waits until nothing of a stream is left on either side.
func empty(t testing.TB, muxes ...*Mux) {
	t.Helper()
	for range 500 {
		left := 0
		for _, m := range muxes {
			left += int(m.opts.Metrics.LiveSlots.Load()+m.opts.Metrics.Held.Load()) + m.staged()
		}
		if left == 0 {
			return
		}
		time.Sleep(time.Millisecond)
	}
	for _, m := range muxes {
		t.Errorf("node %d has %d slots, %d held and %d staged records", m.opts.Worker, m.opts.Metrics.LiveSlots.Load(), m.opts.Metrics.Held.Load(), m.staged())
	}
}

// drained says that so many frames of a source were used, all of one size.
func drained(b *Inbox, f *Frames, tag uint32, records, bytes int) {
	for range records {
		b.Use(f, tag, bytes/records)
	}
	b.Tell(f)
}

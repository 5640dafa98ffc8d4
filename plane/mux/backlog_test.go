// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// TestBacklog: thousands of streams share a link that stands still for longer than the
// window of silence. The peer lives, so none of them is ended, and each has all its records.
func TestBacklog(t *testing.T) {
	const streams, records = 5760, 5
	stands, silence := 20*time.Second, DefaultSilence
	if testing.Short() {
		stands, silence = 10*Tick, 2*Tick
	}
	var pings atomic.Int64
	_, a, b := pair2(t, Options{Silence: silence, Ping: func(context.Context, wire.WorkerID) error {
		pings.Add(1)
		return nil
	}})
	owners := make([]*Owner, streams)
	readers := make([]*reader, streams)
	for i := range owners {
		owners[i], readers[i], _ = open(t, a, b, uint64(i+1), Hooks{End: func(err error) { t.Errorf("stream %d ended: %v", i, err) }})
	}
	if err := a.Flushed(t.Context()); err != nil {
		t.Fatal(err)
	}
	p, err := a.Peer(consumer, 0)
	if err != nil {
		t.Fatal(err)
	}
	link := p.link.(*pipe)
	link.hold.Lock()
	for range records {
		for _, o := range owners {
			if err := o.Item([]byte("x")); err != nil {
				break // the queue is full: the rest is sent later
			}
		}
	}
	time.Sleep(stands)
	link.hold.Unlock()
	if pings.Load() == 0 {
		t.Error("the silent peer was not asked")
	}
	for i, o := range owners {
		send(t, o, []byte("last"))
		if err := o.Finish(wire.FrameFinalized); err != nil {
			t.Fatalf("stream %d: %v", i, err)
		}
	}
	for i, r := range readers {
		for {
			kind, body := r.next(t)
			if kind == wire.Item {
				if item, _ := wire.ItemBytes(body); string(item) == "last" {
					break
				}
				continue
			}
			t.Fatalf("stream %d: %v before its last record", i, kind)
		}
		if kind, _ := r.next(t); kind != wire.Finalized {
			t.Fatalf("stream %d ends with %v", i, kind)
		}
	}
	empty(t, a, b)
}

// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"context"
	"encoding/binary"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/velo-agent/velo-agent/plane/discovery"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// batches is a Source of numbered messages for the batch handler.
type batches struct {
	t    *testing.T
	from wire.WorkerID
	down chan error

	mu          sync.Mutex
	next, until int
	out         int // taken and not given back
}

func newBatches(t *testing.T, m *Messenger) *batches {
	return &batches{t: t, from: m.Worker(), down: make(chan error, 100)}
}

func (b *batches) Take() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.out != 0 {
		b.t.Error("a frame is asked for while one is out")
	}
	if b.next == b.until {
		return nil
	}
	f, err := messageFrame(wire.FireAndForget, wire.NewResponseID(b.from, 0, 0), wire.BatchHandler, binary.BigEndian.AppendUint32(nil, uint32(b.next)))
	if err != nil {
		b.t.Error(err)
	}
	b.next++
	b.out++
	return f
}

func (b *batches) Wrote([]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.out--
}

func (b *batches) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.until += n
}

// told is a link's down: nothing may be out then.
func (b *batches) told(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.out != 0 {
		b.t.Error("down while a frame is out")
	}
	b.down <- err
}

// counted has a node count the numbered messages, which must come in order. reached is told
// of the one with the number last.
func counted(t *testing.T, m *Messenger, last int64) (count *atomic.Int64, reached chan struct{}) {
	var n atomic.Int64
	reached = make(chan struct{}, 1)
	m.HandleNow(wire.BatchHandler, func(_ wire.WorkerID, payload []byte) {
		if got := binary.BigEndian.Uint32(payload); int64(got) != n.Load() {
			t.Errorf("message %d after %d", got, n.Load())
		}
		if n.Add(1) == last {
			reached <- struct{}{}
		}
	})
	return &n, reached
}

func TestLink(t *testing.T) {
	a, b := pair(t, "tcp", Options{}, Options{})
	_, reached := counted(t, b, 1000)
	s := newBatches(t, a)
	l := a.Link(b.Worker(), s, s.told)
	for range 1000 {
		s.add(1)
		l.Kick()
	}
	get(t, reached)
	// Messages share the connection.
	b.Handle("_echo", echo)
	if _, err := a.Call(soon(t), b.Worker(), "_echo", nil); err != nil {
		t.Fatal(err)
	}
	if n := len(a.peers.lines()); n != 1 {
		t.Errorf("%d connections", n)
	}
	b.Close()
	wantErr(t, get(t, s.down), ErrPeerLost)
	s.add(1)
	l.Kick()
	wantErr(t, get(t, s.down), ErrPeerLost)
	if len(s.down) != 0 {
		t.Error("told twice")
	}
	l.Close()
	l.Kick()
	if _, err := a.Call(soon(t), b.Worker(), "_echo", nil); err == nil {
		t.Fatal("called a closed node")
	}
	if len(s.down) != 0 {
		t.Error("told after it was closed")
	}
}

// TestLinkJoins: a connection that a message has made serves the link.
func TestLinkJoins(t *testing.T) {
	a, b := pair(t, "unix", Options{}, Options{})
	got, _ := counted(t, b, 10)
	b.Handle("_count", func(context.Context, Message) ([]byte, error) {
		return binary.BigEndian.AppendUint64(nil, uint64(got.Load())), nil
	})
	if _, err := a.Call(soon(t), b.Worker(), "_count", nil); err != nil {
		t.Fatal(err)
	}
	s := newBatches(t, a)
	l := a.Link(b.Worker(), s, s.told)
	s.add(10)
	l.Kick()
	for got.Load() != 10 {
		if _, err := a.Call(soon(t), b.Worker(), "_count", nil); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	s.add(1)
	l.Kick()
	if _, err := a.Call(soon(t), b.Worker(), "_count", nil); err != nil || got.Load() != 10 {
		t.Fatal("a closed link sends", err)
	}
}

func TestLinkDiscovers(t *testing.T) {
	b := newNode(t, "tcp", Options{})
	_, reached := counted(t, b, 1)
	a := newNode(t, "tcp", Options{Discovery: discovery.NewStatic(b.PeerInfo())})
	s := newBatches(t, a)
	s.add(1)
	a.Link(b.Worker(), s, s.told).Kick()
	get(t, reached)
	nobody := newBatches(t, a)
	a.Link(5, nobody, nobody.told).Kick()
	wantErr(t, get(t, nobody.down), ErrUnknownPeer)
}

// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// Tick is how often the one goroutine of a mux looks after its peers.
const Tick = 200 * time.Millisecond

// Ticks is a time in ticks, at least one.
func Ticks(d time.Duration) uint32 { return uint32(max((d+Tick-1)/Tick, 1)) }

// idleTicks is how long a peer without slots is kept.
const idleTicks = uint32(time.Minute / Tick)

// epochs are unique in the process, so that a peer made anew begins above the last.
var epochs atomic.Uint64

// Mux holds the peers of a node.
type Mux struct {
	opts     Options
	envelope envelope
	begun    time.Time
	tick     atomic.Uint32
	binds    binds

	mu     sync.RWMutex
	peers  map[wire.WorkerID]*Peer
	closed bool

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// New begins a mux. Close ends it.
func New(o Options) *Mux {
	o.setDefaults()
	m := &Mux{opts: o, envelope: newEnvelope(o.Worker), begun: time.Now(), peers: map[wire.WorkerID]*Peer{}}
	m.tick.Store(1)
	staged := m.staged
	o.Metrics.staged.Store(&staged)
	ctx, stop := context.WithCancel(context.Background())
	m.stop = stop
	m.wg.Go(func() { m.sweep(ctx) })
	return m
}

// Flush writes what is staged for every peer, whatever the policy.
func (m *Mux) Flush() {
	m.mu.RLock()
	peers := slices.Collect(maps.Values(m.peers))
	m.mu.RUnlock()
	for _, p := range peers {
		p.Flush()
	}
}

// Live counts the slots that hold state, of both directions.
func (m *Mux) Live() int { return int(m.opts.Metrics.LiveSlots.Load()) }

// staged counts the records that wait for connections.
func (m *Mux) staged() (n int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, p := range m.peers {
		p.out.mu.Lock()
		if p.out.stage != nil {
			n += p.out.stage.count
		}
		for _, b := range p.out.sealed {
			n += b.count
		}
		p.out.mu.Unlock()
	}
	return n
}

// Flushed waits until everything that was staged was handed to the connections, whatever
// the policy.
func (m *Mux) Flushed(ctx context.Context) error {
	for {
		m.mu.RLock()
		left := false
		for _, p := range m.peers {
			p.Flush()
			p.out.mu.Lock()
			left = left || p.out.stage != nil || len(p.out.sealed) > 0 || p.out.writing != nil || len(p.out.closes) > 0
			p.out.mu.Unlock()
		}
		m.mu.RUnlock()
		if !left {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// Window is the credit that the mux offers; its other budget is SlotBytes.
func (m *Mux) Window() uint32 { return m.opts.Window }

// SlotBytes is how many bytes of a slot may wait before its credit is withheld.
func (m *Mux) SlotBytes() uint32 { return m.opts.SlotBytes }

func (m *Mux) nextEpoch() uint64 { return epochs.Add(1) }

// Batch applies a batch that came from a peer. payload is not kept.
func (m *Mux) Batch(from wire.WorkerID, payload []byte) {
	if len(payload) < wire.BatchHeaderLen {
		m.opts.Metrics.Malformed.Inc()
		return
	}
	for {
		p, err := m.Peer(from, 0)
		if err != nil {
			m.opts.Metrics.Malformed.Inc()
			return
		}
		if p.batch(payload) {
			return // else it was evicted just now
		}
	}
}

// Peer returns the peer, which is made where there is none. v is what it speaks; 0: as
// it will show, or as it did.
func (m *Mux) Peer(w wire.WorkerID, v wire.Version) (*Peer, error) {
	if p := m.peer(w); p != nil {
		return p, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.closed:
		return nil, ErrClosed
	case m.peers[w] != nil:
		return m.peers[w], nil
	case len(m.peers) >= m.opts.MaxPeers && !m.forgetOne():
		return nil, fmt.Errorf("%w peers: %d", ErrTooMany, len(m.peers))
	}
	if v == 0 {
		v = wire.V2
	}
	p := newPeer(m, w, v)
	m.peers[w] = p
	return p, nil
}

// peer returns the peer, if there is one, which is kept for idleTicks more.
func (m *Mux) peer(w wire.WorkerID) *Peer {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p := m.peers[w]
	if p != nil {
		p.used.Store(m.tick.Load())
	}
	return p
}

// Suspect says that a connection was lost over which batches of the peer came: streams
// from it on which nothing more comes are ended in time.
func (m *Mux) Suspect(from wire.WorkerID) {
	if p := m.peer(from); p != nil {
		p.suspect()
	}
}

// Bind lets an open claim the anchor and session of b, once.
func (m *Mux) Bind(b *Bind) { m.binds.add(b) }

// Cancel ends what b is: nobody claims it any more, or its slot closes and its producer
// is told. It reports whether a producer had claimed it. The inbox gets nothing more.
func (m *Mux) Cancel(b *Bind) (claimed bool) {
	s, released := m.binds.release(b)
	if s == nil {
		return !released
	}
	s.p.in.mu.Lock()
	s.p.cancelled(s)
	s.p.unlockIn()
	return true
}

// Release takes back a bind that nobody has claimed, and reports whether it did.
func (m *Mux) Release(b *Bind) bool {
	_, released := m.binds.release(b)
	return released
}

// Stop asks the producer of b, now or when it claims, to finish. A V1 peer is not asked.
func (m *Mux) Stop(b *Bind) {
	s := m.binds.stop(b)
	if s == nil {
		return
	}
	s.p.in.mu.Lock()
	if !s.gone {
		s.p.ask(s, wire.Stop)
	}
	s.p.unlockIn()
}

// Close ends every stream and every link.
func (m *Mux) Close() {
	m.mu.Lock()
	peers := m.peers
	m.peers, m.closed = map[wire.WorkerID]*Peer{}, true
	m.mu.Unlock()
	m.stop()
	m.wg.Wait()
	for _, p := range peers {
		p.end()
	}
}

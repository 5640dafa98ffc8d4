// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// forgetTicks is how often spare buffers are let go: what is in use finds new ones.
const forgetTicks = uint32(10 * time.Second / Tick)

// sweep looks after all peers, once a tick, until ctx ends: heartbeats, silence, credit
// that nobody returned, peers that are no longer needed.
func (m *Mux) sweep(ctx context.Context) {
	tick := time.NewTicker(Tick)
	defer tick.Stop()
	var peers []*Peer
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := m.tick.Add(1)
		if now%forgetTicks == 0 {
			forgetSpares()
		}
		m.mu.RLock()
		peers = peers[:0]
		for _, p := range m.peers {
			peers = append(peers, p)
		}
		m.mu.RUnlock()
		for _, p := range peers {
			p.sweep(ctx, now)
		}
		clear(peers)
	}
}

func (p *Peer) sweep(ctx context.Context, now uint32) {
	owned, kick := p.beat(now < p.quiet.Load())
	if kick {
		p.kick(p.m.opts.Metrics.wakesLinger)
	}
	p.in.mu.Lock()
	received, suspects := p.in.live, p.in.suspects
	if now >= p.quiet.Load() {
		p.returnAll()
	}
	p.in.mu.Unlock()
	silence := Ticks(p.m.opts.Silence)
	if suspects || p.loss.Load() != 0 {
		p.judge(now, silence)
	}
	if owned+received > 0 {
		p.used.Store(now)
		if now-p.heard.Load() > silence && p.pinged.CompareAndSwap(false, true) {
			p.m.wg.Go(func() { p.ping(ctx) })
		}
		return
	}
	p.in.mu.Lock()
	p.in.spare = nil
	p.in.mu.Unlock()
	p.out.mu.Lock()
	p.out.spare = nil
	if len(p.out.closes) == 0 {
		p.out.closes = nil
	}
	p.out.mu.Unlock()
	if now-p.used.Load() > idleTicks {
		p.m.evict(p, now)
	}
}

// beat stages a heartbeat on each slot whose time it is and on which nothing was sent,
// if it has credit, and returns how many slots are owned. quiet: the link is left alone, so
// that nobody may think that it was told.
func (p *Peer) beat(quiet bool) (owned int, kick bool) {
	e := &p.out
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.queued < e.m.opts.QueueBytes {
		e.tellWaiting(len(e.waiting))
	}
	staged := false
	for _, o := range e.owners {
		if o == nil {
			continue
		}
		owned++
		if o.terms.Beat == 0 {
			continue
		}
		if o.beatIn--; o.beatIn > 0 {
			continue
		}
		o.beatIn = o.terms.Beat
		if !o.beaten && o.credit > 0 && e.queued < e.m.opts.QueueBytes {
			if s, err := e.room(o, len(wire.FrameHeartbeat), false); err == nil {
				s.buf = append(wire.AppendRecordHeader(s.buf, wire.Data, o.id, o.seq, len(wire.FrameHeartbeat)), wire.FrameHeartbeat...)
				e.staged(o, s)
				staged = true
			}
		}
		o.beaten = false
	}
	// What is to be said of our slots waits since a link was lost, if it waits still.
	return owned, !quiet && (staged && e.wantsKick(true) || len(e.closes) > 0)
}

// ping asks a silent peer on a connection of its own whether it lives: on the mux a
// beat may wait behind data, so silence alone proves nothing.
func (p *Peer) ping(ctx context.Context) {
	defer p.pinged.Store(false)
	ctx, cancel := context.WithTimeout(ctx, p.m.opts.Silence/3)
	defer cancel()
	if p.m.opts.Ping == nil || p.m.opts.Ping(ctx, p.worker) == nil {
		p.heard.Store(p.m.tick.Load())
		return
	}
	if ctx.Err() == context.Canceled {
		return // the mux ends
	}
	p.in.mu.Lock()
	p.m.opts.Metrics.WatchdogFirings.Add(float64(p.in.live))
	p.in.mu.Unlock()
	p.Lost(ErrPeerLost)
}

// judge ends the slots on which nothing had its turn for the time of silence since their
// records may have been lost. An owner that waits for credit is silent by right.
func (p *Peer) judge(now, silence uint32) {
	p.in.mu.Lock()
	p.in.suspects = false
	loss := p.loss.Swap(0)
	for _, s := range p.in.slots {
		if s == nil {
			continue
		}
		if s.suspect == 0 && loss != 0 && s.heard <= loss {
			s.suspect = now
		}
		switch {
		case s.suspect == 0:
			continue
		case s.heard > s.suspect:
			s.suspect = 0
			continue
		case s.credit <= 0 && len(s.hold) == 0:
			s.suspect = now
		case now-s.suspect > silence:
			p.m.opts.Metrics.WatchdogFirings.Inc()
			p.inject(s)
			p.ask(s, wire.Cancel)
			p.retire(s)
			continue
		}
		p.in.suspects = true
	}
	p.unlockIn()
}

// evict forgets a peer that has had no stream for long; it is made anew when needed.
func (m *Mux) evict(p *Peer, now uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now-p.used.Load() > idleTicks {
		m.forget(p)
	}
}

// forgetOne makes room for a newcomer: else whoever names many workers would keep it out.
// It looks at some peers; map order is random. The lock is held.
func (m *Mux) forgetOne() bool {
	looks := 64
	for _, p := range m.peers {
		if m.forget(p) {
			return true
		}
		if looks--; looks == 0 {
			break
		}
	}
	return false
}

// forget takes a peer out that has no stream and nothing to write. The lock is held.
func (m *Mux) forget(p *Peer) bool {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	p.out.mu.Lock()
	e := &p.out
	used := p.in.live > 0 || len(e.owners) > len(e.free) || e.stage != nil || len(e.sealed) > 0 || e.writing != nil
	if !used {
		e.closed, p.in.closed = true, true
		delete(m.peers, p.worker)
	}
	p.out.mu.Unlock()
	if !used {
		p.stopTimers()
		m.wg.Go(p.link.Close) // it waits for its writer, which may be in Take
	}
	return !used
}

func (p *Peer) stopTimers() {
	p.visit.Stop()
	p.out.linger.Stop()
}

// end ends everything of the peer.
func (p *Peer) end() {
	p.in.mu.Lock()
	p.in.closed = true
	p.in.mu.Unlock()
	p.out.mu.Lock()
	p.out.closed = true
	p.out.mu.Unlock()
	p.stopTimers()
	p.link.Close()
	p.Lost(ErrClosed)
}

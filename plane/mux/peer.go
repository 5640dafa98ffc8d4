// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// Peer is another node: what goes to it and what comes from it. It is the source of
// the link to it.
//
// Locks are taken in this order: in.mu, then out.mu, then those of inboxes and binds.
type Peer struct {
	m      *Mux
	worker wire.WorkerID
	link   Link
	out    egress
	in     ingress

	control atomic.Bool // a close was noted, and the link is to be kicked
	returns

	heard  atomic.Uint32 // the tick at which anything of its epoch came
	used   atomic.Uint32 // the tick at which somebody asked for it, or it had a slot
	loss   atomic.Uint32 // the tick at which records may have been lost; 0: it was dealt with
	pinged atomic.Bool   // is asked whether it lives

	fails atomic.Uint32 // of the link, since something was written
	quiet atomic.Uint32 // until this tick the sweep leaves the link alone
}

func newPeer(m *Mux, w wire.WorkerID, v wire.Version) *Peer {
	p := &Peer{m: m, worker: w}
	p.out = egress{m: m, epoch: m.nextEpoch(), version: v}
	p.out.linger = time.AfterFunc(time.Hour, p.lingered)
	p.out.linger.Stop()
	p.visit = time.AfterFunc(time.Hour, p.visitNow)
	p.visit.Stop()
	p.heard.Store(m.tick.Load())
	p.used.Store(m.tick.Load())
	p.link = m.opts.Dial(w, p, p.down)
	return p
}

// Worker is the peer's id.
func (p *Peer) Worker() wire.WorkerID { return p.worker }

func (p *Peer) kick(why prometheus.Counter) {
	why.Inc()
	p.link.Kick()
}

func (p *Peer) lingered() {
	p.out.mu.Lock()
	p.out.due = true
	p.out.mu.Unlock()
	p.kick(p.m.opts.Metrics.wakesLinger)
}

// Flush writes what is staged, whatever the policy.
func (p *Peer) Flush() {
	p.out.mu.Lock()
	kick := (p.out.stage != nil || len(p.out.sealed) > 0) && p.out.wantsKick(true)
	p.out.mu.Unlock()
	if kick {
		p.kick(p.m.opts.Metrics.wakesFrame)
	}
}

// Take implements Source.
func (p *Peer) Take() []byte {
	p.collect()
	p.out.mu.Lock()
	defer p.out.mu.Unlock()
	b := p.out.take(len(p.grants)+len(p.out.closes) > 0, p.addControl)
	if b == nil {
		return nil
	}
	return b.buf
}

// Wrote implements Source.
func (p *Peer) Wrote([]byte) {
	p.out.mu.Lock()
	if b := p.out.writing; b != nil {
		p.out.writing = nil
		p.fails.Store(0)
		p.out.keepSaid(b.closes)
		b.retire(nil)
		p.out.reuse(b)
	}
	p.out.mu.Unlock()
}

// addControl adds what waits to be said of slots that we receive on: lifecycles and
// closes, then credit, as much as fits. The egress is locked.
func (p *Peer) addControl(b *batch) {
	e, limit := &p.out, p.m.opts.MaxBatch
	full := func(body int) bool {
		return b.count > 0 && !b.fits(p.m.envelope, wire.RecordHeaderLen+body, 1, limit)
	}
	for id, c := range e.closes {
		if full(9) {
			return
		}
		switch {
		case c.asked && e.version != wire.V1:
			b.buf = wire.AppendLifecycle(b.buf, id, c.session, c.lifecycle)
			e.counts.lifecycle++
			b.count++
		case !c.stops(): // V1 knows no stop, and its cancel is a close
			if c.asked {
				c.reason = wire.UnknownSlot
			}
			b.buf = wire.AppendClose(b.buf, id, 0, c.reason)
			e.counts.close++
			b.count++
		}
		b.closes = append(b.closes, c)
		delete(e.closes, id)
	}
	n := 0
	for _, g := range p.grants {
		if full(4) {
			break
		}
		b.buf = wire.AppendCredit(b.buf, g.slot.id, g.delta)
		b.count++
		n++
	}
	b.grants = append(b.grants, p.grants[:n]...)
	e.counts.credit += n
	p.grants = slices.Delete(p.grants, 0, n)
}

// down ends the epoch: what was on the way is lost, and every stream that we send.
func (p *Peer) down(err error) {
	p.in.mu.Lock()
	p.out.mu.Lock()
	for _, c := range p.out.said { // they may have been lost on the way
		if p.stands(&c) {
			p.out.note(c)
		}
	}
	p.out.said = nil
	if w := p.out.writing; w != nil {
		p.repost(w.grants)
		for _, c := range w.closes {
			p.out.note(c)
		}
	}
	p.repost(p.grants)
	p.grants = p.grants[:0]
	took := p.out.seq > 0
	p.out.mu.Unlock()
	p.in.mu.Unlock()
	// The sweep asks again, less and less often where the link cannot be made.
	fails := p.fails.Add(1)
	p.quiet.Store(p.m.tick.Load() + min(1<<min(fails, 8)/2, mostQuiet))
	p.asked.Store(false)
	p.due.Store(false)
	p.suspect()
	if p.die(err) > 0 || took {
		p.m.opts.Metrics.EpochDeaths.Inc()
	}
}

// mostQuiet is how many ticks the sweep leaves a link alone that cannot be made.
const mostQuiet = uint32(5 * time.Second / Tick)

// die ends the epoch and the streams that we send, and tells their producers.
func (p *Peer) die(cause error) (streams int) {
	switch {
	case cause == nil:
		cause = ErrPeerLost
	case !errors.Is(cause, ErrPeerLost) && !errors.Is(cause, ErrClosed):
		cause = fmt.Errorf("%w: %w", ErrPeerLost, cause)
	}
	p.out.mu.Lock()
	ended := p.out.die(cause)
	p.out.mu.Unlock()
	for _, o := range ended {
		o.hooks.OnEnd(cause)
	}
	return len(ended)
}

// suspect has every slot that is open now judged: records of it may be lost.
func (p *Peer) suspect() { p.loss.Store(p.m.tick.Load()) }

// Lost ends everything of a peer that is gone.
func (p *Peer) Lost(err error) {
	p.in.mu.Lock()
	p.retireAll()
	p.unlockIn()
	p.die(err)
}

// Open makes o a producer's slot at the peer; the producer has it beside what else it looks
// at with each record. The open leaves at once.
func (p *Peer) Open(o *Owner, t Terms, h Producer) error {
	*o = Owner{p: p, terms: t, hooks: h, credit: t.Credit, beaten: true, beatIn: t.Beat}
	p.out.mu.Lock()
	if p.out.closed {
		p.out.mu.Unlock()
		return ErrPeerLost
	}
	if t.Version != 0 {
		p.out.version = t.Version
	}
	if err := p.out.open(o); err != nil {
		p.out.mu.Unlock()
		return err
	}
	kick := p.out.wantsKick(true)
	p.out.mu.Unlock()
	p.m.opts.Metrics.LiveSlots.Add(1)
	if kick {
		p.kick(p.m.opts.Metrics.wakesOpen)
	}
	return nil
}

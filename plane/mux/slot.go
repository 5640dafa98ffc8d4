// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"sync/atomic"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// inSlot is the consumer's end of a slot, two lines of the processor's cache. What each
// record touches is in the first.
type inSlot struct {
	p     *Peer
	inbox *Inbox // the bind's
	id    wire.SlotID
	tag   uint32
	// poller is that of the inbox, if it takes frames at once; as it was seen last, so that
	// who reads a connection need not look at each inbox.
	poller *Poller

	// Guarded by p.in.mu.
	next     uint32 // the number that the next record has
	heard    uint32 // the tick at which a record had its turn
	credit   int32  // records that the owner may still send
	read     int32  // records that were handled in a run, not granted again
	waiting  int    // bytes in runs
	terminal bool   // one was delivered
	gone     bool

	hungry   atomic.Bool  // credit is not to wait: half of the window or more is used, or it has waited
	taken    atomic.Int32 // records that were taken from the inbox, not granted again
	buffered atomic.Int64 // bytes in the inbox

	// Guarded by p.in.mu too.
	hold    map[uint32]held // nil: nothing is
	held    int             // bytes in hold
	suspect uint32          // since when records of it are missing, or may be lost; 0: none are
	bind    *Bind
	_       [16]byte // the allocator places 128 bytes at multiples of that
}

// held is a record that came before its turn. body is a copy.
type held struct {
	t    wire.RecordType
	body []byte
}

// drained implements drainer.
func (s *inSlot) drained(records, bytes int) {
	s.taken.Add(int32(records))
	s.buffered.Add(int64(-bytes))
	s.p.dirty.add(s.id.Index())
	if s.hungry.Load() {
		s.p.askVisit()
	}
}

func (s *inSlot) source() any { return s.bind.Source }

// unwanted ends a slot whose consumer is gone.
func (s *inSlot) unwanted() {
	s.p.in.mu.Lock()
	s.p.refuse(s, wire.UnknownSlot)
	s.p.unlockIn()
}

// Bind is an anchor that waits for a slot: who names the pair claims it, once.
type Bind struct {
	Anchor, Session uint64
	Inbox           *Inbox
	// Source is who sends, for an anchor with many senders (Inbox.Source).
	Source any
	// An open named the pair; the slot is gone, and but for Cancel a terminal is in the
	// inbox. They run on the goroutine of a connection, or on that of who ends the slot, and
	// must not block; Ended may overtake Claimed. Each may be nil.
	Claimed, Ended func()

	// Guarded by the lock of its part of the binds.
	slot *inSlot // nil: nobody has claimed it, or the slot is gone
	stop bool    // asked for before it was claimed
}

// opened takes an OpenSlot: it claims its bind, or is refused.
func (p *Peer) opened(rec *wire.Record) {
	in, index := &p.in, rec.Slot.Index()
	in.opens++
	anchor, session := wire.ParseOpen(rec.Body)
	if index >= wire.MaxIndex {
		in.counts[dropUnknownSlot]++
		p.turnAway(rec.Slot, wire.ProtocolError)
		return
	}
	var incumbent *inSlot
	if int(index) < len(in.slots) {
		incumbent = in.slots[index]
		in.last[index] = in.opens
	}
	if incumbent != nil && incumbent.id != rec.Slot {
		in.counts[dropCollision]++
		p.turnAway(rec.Slot, wire.ProtocolError)
		return
	}
	if incumbent != nil && incumbent.bind.Anchor == anchor && incumbent.bind.Session == session {
		in.counts[dropDuplicate]++ // the same open once more: to refuse it would end the stream that it began
		return
	}
	s := &inSlot{p: p, id: rec.Slot, next: next(rec.FrameSeq), heard: p.m.tick.Load()}
	s.credit = int32(p.m.opts.Window)
	b, stop := p.m.binds.claim(anchor, session, s)
	if b == nil {
		in.counts[dropUnknownSlot]++
		p.turnAway(rec.Slot, wire.UnknownSlot)
		return
	}
	if incumbent != nil { // opened again: the owner began anew
		p.inject(incumbent)
		p.retire(incumbent)
	}
	if n := int(index) + 1 - len(in.slots); n > 0 { // for a claimed slot only: an index costs nothing
		in.slots = append(in.slots, make([]*inSlot, n)...)
		in.last = append(in.last, make([]uint32, n)...)
	}
	in.last[index] = in.opens
	in.slots[index] = s
	in.live++
	p.m.opts.Metrics.LiveSlots.Add(1)
	if b.Claimed != nil {
		in.told = append(in.told, b.Claimed)
	}
	if stop {
		p.ask(s, wire.Stop)
	}
}

// violated ends a slot whose owner broke the rules.
func (p *Peer) violated(s *inSlot) {
	p.m.opts.Metrics.HoldOverflow.Inc()
	p.inject(s)
	p.refuse(s, wire.ProtocolError)
}

// refuse ends the slot and tells its owner why.
func (p *Peer) refuse(s *inSlot, reason wire.CloseReason) {
	if s.gone {
		return
	}
	p.close(s.id, reason)
	p.retire(s)
}

// retire forgets the slot.
func (p *Peer) retire(s *inSlot) {
	if s.gone {
		return
	}
	s.gone = true
	p.in.slots[s.id.Index()] = nil
	p.in.live--
	for _, h := range s.hold {
		p.unhold(s, len(h.body))
	}
	s.hold = nil
	p.m.opts.Metrics.LiveSlots.Add(-1)
	p.m.binds.leave(s.bind)
	if s.bind.Ended != nil {
		p.in.told = append(p.in.told, s.bind.Ended)
	}
}

// retireAll ends every slot, as the peer began a new epoch or is lost: each consumer
// that has no terminal gets one.
func (p *Peer) retireAll() {
	for _, s := range p.in.slots {
		if s != nil {
			p.inject(s)
			p.retire(s)
		}
	}
}

// close notes that the slot is to be closed, by us as its receiver.
func (p *Peer) close(id wire.SlotID, reason wire.CloseReason) {
	p.lockOut().note(closing{slot: id, reason: reason, opens: p.in.opens})
	p.control.Store(true)
}

// turnAway closes what never was a slot of ours, unless too many such wait to be told.
func (p *Peer) turnAway(id wire.SlotID, reason wire.CloseReason) {
	if len(p.lockOut().closes) >= mostClosing {
		p.m.opts.Metrics.ControlRefused.Inc()
		return
	}
	p.close(id, reason)
}

// stands reports whether a close that was said may be said again: it names its slot by a
// generation, which comes again after 256 opens. The ingress is locked.
func (p *Peer) stands(c *closing) bool {
	index := c.slot.Index()
	switch {
	case c.asked: // it names its session
		return true
	case int(index) < len(p.in.last):
		return p.in.last[index] <= c.opens // none came since
	}
	return p.in.opens-c.opens < mostOpens
}

// ask notes that a slot's producer is to stop or cancel.
func (p *Peer) ask(s *inSlot, action wire.Lifecycle) {
	p.lockOut().note(closing{slot: s.id, asked: true, session: s.bind.Session, lifecycle: action})
	p.control.Store(true)
}

// cancelled ends a slot that its consumer wants no more of.
func (p *Peer) cancelled(s *inSlot) {
	if s.gone {
		return
	}
	if !s.terminal {
		s.terminal = true // nobody is to be told
		s.inbox.leave(s.tag)
	}
	p.ask(s, wire.Cancel)
	p.retire(s)
}

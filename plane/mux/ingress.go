// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"slices"
	"sync"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// ingress is what comes from a peer. Its records are put into inboxes by whoever reads
// the peer's connection, under mu, which no consumer takes.
type ingress struct {
	mu    sync.Mutex
	begun bool
	epoch uint64
	seq   uint32
	slots []*inSlot // by index; nil: free
	last  []uint32  // likewise: the number of the last open
	live  int
	opens uint32 // that came so far
	held  int    // bytes in holds
	// suspects says that there are slots to judge.
	suspects bool
	woken    []caller // to be told when the batch is through
	looks    []*Inbox // room for those of a poller
	runs     []*Run   // to be handed over then, one a poller
	spare    []*Run
	records  int // of the last batch, and its size
	bytes    int
	owes     bool // some have that was too little to be granted
	told     []func()
	closed   bool
	locked   bool // the egress is, for a run of records to owners
	counts   dropCounts

	version wire.Version // as the egress has it
}

// Drop reasons, as velo labels them.
const (
	dropStaleEpoch = iota
	dropGeneration
	dropUnknownSlot
	dropClosedSlot
	dropCollision
	dropDuplicate
	dropLane
	dropReasons
)

var dropNames = [dropReasons]string{"stale_epoch", "generation", "unknown_slot", "closed_slot", "slot_collision", "duplicate", "lane_mismatch"}

type dropCounts [dropReasons]int

// batch applies one batch. It never waits and answers nothing but by control records.
// It reports whether the peer is still there.
func (p *Peer) batch(payload []byte) bool {
	p.in.mu.Lock()
	open := !p.in.closed
	if open {
		p.account() // often, so that few runs are about
		p.apply(payload)
	}
	p.unlockIn()
	return open
}

// unlockIn tells who is to know of what was applied.
func (p *Peer) unlockIn() {
	in := &p.in
	if in.locked {
		in.locked = false
		p.out.mu.Unlock()
	}
	p.m.opts.Metrics.dropped(&in.counts)
	in.looks = tellAll(in.woken, in.looks)
	clear(in.woken)
	in.woken = in.woken[:0]
	for i, r := range in.runs { // after those: an inbox may have what came before
		r.poller.add(r)
		in.runs[i] = nil
	}
	in.runs = in.runs[:0]
	told := in.told // by far most batches have none
	in.told = nil
	in.mu.Unlock()
	for _, f := range told {
		f()
	}
	if p.control.Swap(false) {
		p.kick(p.m.opts.Metrics.wakesControl)
	}
}

func (p *Peer) apply(payload []byte) {
	in, metrics := &p.in, p.m.opts.Metrics
	var records wire.Records
	h, err := records.Reset(payload)
	if err != nil {
		metrics.Malformed.Inc()
		return
	}
	if h.Flags&0x0f != 0 { // another lane than the handler's, which is 0
		in.counts[dropLane] += int(h.Count)
		return
	}
	switch {
	case !in.begun:
		in.begun, in.epoch, in.seq = true, h.Epoch, h.Seq
	case h.Epoch < in.epoch:
		in.counts[dropStaleEpoch] += int(h.Count)
		return
	case h.Epoch > in.epoch:
		p.retireAll()
		in.epoch, in.seq = h.Epoch, h.Seq
	}
	if wire.SeqNewer(h.Seq, in.seq) {
		metrics.SeqGaps.Add(float64(wire.SeqGap(in.seq, h.Seq)))
		p.suspect()
	}
	if !wire.SeqNewer(in.seq, h.Seq) {
		in.seq = h.Seq + 1
	}
	p.heard.Store(p.m.tick.Load())
	if h.Version != in.version && records.Err() == nil {
		in.version = h.Version
		p.lockOut().version = h.Version
	}
	in.records, in.bytes = int(h.Count), len(payload)
	var rec wire.Record
	n := 0
	for records.Next(&rec) {
		n++
		p.record(&rec)
	}
	metrics.received(n)
	if records.Err() != nil {
		metrics.Malformed.Inc()
		p.suspect() // of the records that were skipped
	}
}

func (p *Peer) record(rec *wire.Record) {
	switch rec.Type {
	case wire.Data, wire.SlotHeartbeat:
		if s := p.slotOf(rec.Slot); s != nil {
			p.inOrder(s, rec)
		}
	case wire.OpenSlot:
		p.opened(rec)
	case wire.CloseSlot:
		if reason := wire.ParseClose(rec.Body); reason.FromOwner() {
			if s := p.slotOf(rec.Slot); s != nil {
				p.inOrder(s, rec)
			}
		} else {
			p.ownerEnds(rec.Slot)
		}
	case wire.CreditUpdate:
		p.credited(rec.Slot, wire.ParseCredit(rec.Body))
	case wire.LifecycleSlot:
		p.lifecycle(rec)
	}
}

// slotOf finds the live slot that a record of its owner is for.
func (p *Peer) slotOf(id wire.SlotID) *inSlot {
	in, index := &p.in, id.Index()
	if int(index) >= len(in.slots) || in.slots[index] == nil {
		in.counts[dropClosedSlot]++
		return nil
	}
	s := in.slots[index]
	if s.id != id {
		in.counts[dropGeneration]++
		p.m.opts.Metrics.GenerationMismatch.Inc()
		return nil
	}
	return s
}

// inOrder applies a record whose turn it is, and those that waited for it, or holds it.
func (p *Peer) inOrder(s *inSlot, rec *wire.Record) {
	switch {
	case rec.FrameSeq < s.next:
		p.in.counts[dropDuplicate]++
		return
	case rec.FrameSeq > s.next:
		p.holdBack(s, rec)
		return
	}
	p.admit(s, rec.Type, rec.Body, false)
	for !s.gone && len(s.hold) > 0 {
		h, ok := s.hold[s.next]
		if !ok {
			return
		}
		delete(s.hold, s.next)
		p.unhold(s, len(h.body))
		if len(s.hold) == 0 {
			s.suspect = 0
		}
		p.admit(s, h.t, h.body, true)
	}
}

// admit puts the record whose turn it is into the inbox. paid: it took its credit when
// it was held.
func (p *Peer) admit(s *inSlot, t wire.RecordType, body []byte, paid bool) {
	s.next = next(s.next)
	s.heard = p.m.tick.Load()
	switch t {
	case wire.CloseSlot:
		p.inject(s) // whatever it says: without a terminal nobody would learn of the end
		p.retire(s)
		return
	case wire.SlotHeartbeat:
		body = wire.FrameHeartbeat
	}
	terminal := wire.IsTerminal(body)
	if s.terminal || !terminal && !paid && !p.spend(s, 1) {
		p.violated(s)
		return
	}
	if string(body) == string(wire.FrameHeartbeat) { // it shows life, and is seen by nobody
		s.drained(1, 0)
		return
	}
	p.put(s, body)
	s.terminal = s.terminal || terminal
}

// put appends a frame to the inbox; a consumer that is gone ends the slot.
func (p *Peer) put(s *inSlot, frame []byte) {
	b := s.inbox
	if s.poller == nil {
		if poller := b.poller.Load(); poller != nil && b.direct {
			s.poller = poller
		}
	}
	if s.poller != nil {
		s.waiting += len(frame)
		p.run(s.poller).add(s, frame)
		return
	}
	s.buffered.Add(int64(len(frame)))
	told, ok := b.push(s.tag, frame)
	if !ok {
		p.refuse(s, wire.UnknownSlot)
		return
	}
	if told.b != nil {
		p.in.woken = append(p.in.woken, told)
	}
}

// inject ends the stream for the consumer, unless it was ended.
func (p *Peer) inject(s *inSlot) {
	if !s.terminal {
		s.terminal = true
		p.put(s, wire.FrameDropped)
	}
}

// holdBack keeps a record that came before its turn: each costs a credit and bytes of
// both budgets.
func (p *Peer) holdBack(s *inSlot, rec *wire.Record) {
	if _, twice := s.hold[rec.FrameSeq]; twice {
		p.in.counts[dropDuplicate]++
		return
	}
	n := len(rec.Body)
	window := int64(p.m.opts.Window) + 2 // a terminal and a close need no credit
	over := int64(rec.FrameSeq)-int64(s.next) > window || p.in.held+n > p.m.opts.PeerBytes ||
		s.held > 0 && s.held+n > int(p.m.opts.SlotBytes)
	if rec.Type != wire.CloseSlot && !wire.IsTerminal(rec.Body) && !over {
		over = !p.spend(s, 1)
	}
	if over {
		p.violated(s)
		return
	}
	if s.hold == nil {
		s.hold = map[uint32]held{}
	}
	if s.suspect == 0 {
		s.suspect, p.in.suspects = p.m.tick.Load(), true
	}
	s.hold[rec.FrameSeq] = held{rec.Type, slices.Clone(rec.Body)}
	s.held += n
	p.in.held += n
	p.m.opts.Metrics.Held.Add(1)
}

func (p *Peer) unhold(s *inSlot, n int) {
	s.held -= n
	p.in.held -= n
	p.m.opts.Metrics.Held.Add(-1)
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

// lockOut locks the egress for a run of records to owners.
func (p *Peer) lockOut() *egress {
	if !p.in.locked {
		p.out.mu.Lock()
		p.in.locked = true
	}
	return &p.out
}

func (p *Peer) credited(id wire.SlotID, delta uint32) {
	o := p.lockOut().owner(id)
	if o == nil {
		return
	}
	o.credit = uint32(min(uint64(o.credit)+uint64(delta), 1<<31-1))
	o.spell = false
	o.tell()
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

// ownerEnds takes a close from the receiver of a slot that we own.
func (p *Peer) ownerEnds(id wire.SlotID) {
	e := p.lockOut()
	o := e.owner(id)
	if o == nil {
		return
	}
	e.release(o, ErrCancelled)
	p.in.told = append(p.in.told, func() { o.hooks.OnEnd(ErrCancelled) })
}

func (p *Peer) lifecycle(rec *wire.Record) {
	o := p.lockOut().owner(rec.Slot)
	session, action := wire.ParseLifecycle(rec.Body)
	switch {
	case o == nil || o.terms.Session != session:
	case action == wire.Cancel:
		p.ownerEnds(rec.Slot)
	default:
		p.in.told = append(p.in.told, o.hooks.OnStop)
	}
}

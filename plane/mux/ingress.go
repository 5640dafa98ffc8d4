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
		r.poller.ready.Add(r)
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

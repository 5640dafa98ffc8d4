// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// egress is what goes to a peer: the slots that we own there, and the batches that wait
// for the connection.
type egress struct {
	m  *Mux
	mu sync.Mutex

	epoch   uint64
	seq     uint32
	version wire.Version

	owners []*Owner // by index; nil: free
	gens   []uint8
	free   []uint32 // last freed first

	stage   *batch // where records are staged; nil: nothing is
	sealed  []*batch
	queued  int // bytes of both
	gather  gather
	lingers bool // the timer of linger runs, for stage
	linger  *time.Timer
	writing *batch // the connection has it
	closed  bool
	spare   []*batch
	waiting []*Owner // refused for want of room, the first of them at first
	first   int
	record  int  // bytes of one, on average, in the last batch
	kicked  bool // the link knows, and has not asked since
	due     bool // what is staged is to be written whatever the policy

	closes map[wire.SlotID]closing // of slots that we receive on, by our wish
	said   []closing               // the last that were written, for a lost connection
	counts recordCounts
}

// closing is how a slot that we receive on is to be ended.
type closing struct {
	slot      wire.SlotID
	reason    wire.CloseReason
	session   uint64
	lifecycle wire.Lifecycle
	asked     bool   // a lifecycle record, not a close
	opens     uint32 // that had come from the peer by then
}

// recordCounts are records by type, told once a batch.
type recordCounts struct{ data, open, close, credit, lifecycle int }

// stops says that it is the wish that a close may replace.
func (c *closing) stops() bool { return c.asked && c.lifecycle == wire.Stop }

const (
	// mostClosing bounds what refused opens can make us remember.
	mostClosing = 8192
	// mostQueued is how often QueueBytes may wait before no stream is opened: opens and
	// terminals wait for nothing.
	mostQueued = 16
	// mostSaid bounds what is said again after a lost connection.
	mostSaid = mostClosing
	// mostOpens is how many opens may have come before a close of an index that no slot ever
	// had is not said again.
	mostOpens = 128
	// controlLen is the longest record about a slot that we receive on.
	controlLen = wire.RecordHeaderLen + 9
)

// note keeps what the next batch says of a slot. The first close wins, and a close over
// a stop. The lock is held.
func (e *egress) note(c closing) {
	if was, twice := e.closes[c.slot]; twice && !was.stops() {
		return
	}
	if e.closes == nil {
		e.closes = map[wire.SlotID]closing{}
	}
	e.closes[c.slot] = c
}

// keepSaid remembers what was written. The lock is held.
func (e *egress) keepSaid(list []closing) {
	if over := len(e.said) + len(list) - mostSaid; over > 0 {
		e.said = slices.Delete(e.said, 0, min(max(over, mostSaid/2), len(e.said)))
	}
	e.said = append(e.said, list...)
}

// room returns the batch that a record with a body of n bytes is to join, and counts it
// as sent. terminal: with its close, and never refused for credit or room. The lock is held.
func (e *egress) room(o *Owner, n int, terminal bool) (*batch, error) {
	if o.err != nil {
		return nil, o.over()
	}
	need, count := wire.RecordHeaderLen+n, 1
	if terminal {
		need, count = need+wire.RecordHeaderLen+1, 2
	} else if o.credit == 0 {
		if !o.spell {
			o.spell = true
			e.m.opts.Metrics.CreditExhausted.Inc()
		}
		o.room.Refuse()
		return nil, ErrWouldBlock
	}
	limit := e.m.opts.MaxBatch
	if e.stage == nil || !e.stage.fits(e.m.envelope, need, count, limit) {
		if !terminal && e.queued >= e.m.opts.QueueBytes {
			e.full(o)
			return nil, ErrWouldBlock
		}
		if wire.CheckFrame(len(e.m.envelope), need) != nil {
			return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, n)
		}
		e.begin()
		e.stage.alone = wire.BatchHeaderLen+need > limit
	}
	if !terminal {
		o.credit--
	}
	o.seq = next(o.seq)
	e.queued += need
	return e.stage, nil
}

// begin has what comes join another batch. The lock is held.
func (e *egress) begin() {
	if e.stage != nil {
		e.sealed = append(e.sealed, e.stage)
	}
	e.stage = e.newBatch()
	e.queued += len(e.stage.buf)
}

// full remembers that o waits for room. The lock is held.
func (e *egress) full(o *Owner) {
	o.room.Refuse()
	if !o.queued {
		o.queued = true
		e.waiting = append(e.waiting, o)
	}
}

// staged counts a record of o that joined s. The lock is held.
func (e *egress) staged(o *Owner, s *batch) {
	s.count++
	e.counts.data++
	o.beaten = true
}

// wantsKick says whether the link must be told that something was staged: once until it
// takes. The lock is held.
func (e *egress) wantsKick(urgent bool) bool {
	e.due = e.due || urgent || e.stage != nil && e.stage.alone
	if e.kicked || !e.due && len(e.sealed) == 0 && e.holds() {
		return false
	}
	e.kicked = true
	return true
}

// holds says that what is staged is to wait, for its timer or for Flush. The lock is held.
func (e *egress) holds() bool {
	f := &e.m.opts.Flush
	if f.Manual {
		return true
	}
	if e.lingers {
		return !e.bursts()
	}
	wait := f.Linger
	if wait == 0 && f.Gather > 0 && e.gather.holds > 0 {
		wait = e.gather.wait(time.Since(e.m.begun), f.Gather)
	}
	if wait <= 0 {
		return false
	}
	e.lingers = true
	e.linger.Reset(wait)
	return true
}

// bursts says that what is held came at once: then more of it than that is hardly to come,
// and it leaves. It looks at the sixteenth record, or at the next where that is a close.
// The lock is held.
func (e *egress) bursts() bool {
	most, n := e.m.opts.Flush.Gather, e.stage.count
	if most <= 0 || n < fewRecords || n > fewRecords+1 || !e.gather.burst(time.Since(e.m.begun), most) {
		return false
	}
	e.linger.Stop()
	e.lingers = false
	return true
}

func (e *egress) newBatch() *batch {
	var b *batch
	if n := len(e.spare); n > 0 {
		b, e.spare[n-1] = e.spare[n-1], nil
		e.spare = e.spare[:n-1]
	} else {
		b = &batch{}
	}
	b.begin(e.m.envelope)
	return b
}

// reuse keeps a batch that was written. The lock is held.
func (e *egress) reuse(b *batch) {
	clear(b.grants)
	// As many as may be in use: what is queued, the stage, and what is being written.
	if cap(b.buf) <= 2*e.m.opts.MaxBatch && (len(e.spare)-2)*e.m.opts.MaxBatch < e.m.opts.QueueBytes {
		e.spare = append(e.spare, b)
	}
}

// take returns the next batch to write, with the control records that wait, or nil.
// control adds those, if some wait. The lock is held.
func (e *egress) take(waits bool, control func(*batch)) *batch {
	e.kicked = false
	e.due = e.due || waits
	var b *batch
	held := e.lingers
	if len(e.sealed) > 0 {
		b = e.sealed[0]
	} else if e.stage != nil && (e.due || !e.lingers && !e.m.opts.Flush.waits()) {
		b = e.stage
	}
	switch {
	case b == nil || waits && !b.fits(e.m.envelope, controlLen, 1, e.m.opts.MaxBatch):
		b = e.newBatch() // for the control records alone
	case b == e.stage:
		e.stage = nil
		e.queued -= len(b.buf)
	default:
		e.sealed = slices.Delete(e.sealed, 0, 1)
		e.queued -= len(b.buf)
	}
	if e.stage == nil {
		e.lingers, e.due = false, false
	}
	if waits {
		control(b)
	}
	if b.count == 0 {
		e.reuse(b)
		if waits { // it was nothing that a V1 peer knows
			return e.take(false, control)
		}
		e.roomAgain() // whoever was told has not sent yet
		return nil
	}
	b.seal(e.m.envelope, wire.BatchHeader{Version: e.version, Epoch: e.epoch, Seq: e.seq})
	e.seq++
	e.writing = b
	e.m.opts.Metrics.sent(b.count, &e.counts)
	e.counts = recordCounts{}
	if most := e.m.opts.Flush.Gather; most > 0 {
		e.gather.left(time.Since(e.m.begun), most, b.count, held)
	}
	e.record = len(b.buf) / b.count
	e.roomAgain()
	return b
}

func (f *Flush) waits() bool { return f.Manual || f.Linger > 0 }

// roomAgain tells as many of those who wait as have room for a window of records each: all
// of them would find the room gone. The sweep tells the rest, if those do not send.
// The lock is held.
func (e *egress) roomAgain() {
	if room := e.m.opts.QueueBytes - e.queued; room > 0 && e.first < len(e.waiting) {
		e.tellWaiting(1 + room/max(e.record, 1)/DefaultWindow)
	}
}

// tellWaiting tells up to n of those who wait for room. The lock is held.
func (e *egress) tellWaiting(n int) {
	last := min(e.first+n, len(e.waiting))
	for i, o := range e.waiting[e.first:last] {
		e.waiting[e.first+i] = nil
		o.queued = false
		o.tell()
	}
	e.first = last
	if e.first > len(e.waiting)/2 || e.first == len(e.waiting) {
		e.waiting = slices.Delete(e.waiting, 0, e.first)
		e.first = 0
	}
}

// tell says that a refused record may be tried again. The lock is held.
func (o *Owner) tell() {
	if o.room.Again() {
		o.hooks.OnRoom()
	}
}

// open gives o a slot and stages its open. The lock is held.
func (e *egress) open(o *Owner) error {
	if e.queued >= mostQueued*e.m.opts.QueueBytes {
		return fmt.Errorf("%w bytes wait for the peer: %d; open again when it has taken some", ErrTooMany, e.queued)
	}
	var index uint32
	if n := len(e.free); n > 0 {
		index, e.free = e.free[n-1], e.free[:n-1]
	} else if len(e.owners) >= wire.MaxIndex {
		return fmt.Errorf("%w streams to one peer: %d", ErrTooMany, len(e.owners))
	} else {
		index = uint32(len(e.owners))
		e.owners, e.gens = append(e.owners, nil), append(e.gens, 0)
	}
	e.owners[index] = o
	o.id = wire.MakeSlotID(index, e.gens[index])
	need := wire.RecordHeaderLen + 16
	if e.stage == nil || !e.stage.fits(e.m.envelope, need, 1, e.m.opts.MaxBatch) {
		e.begin()
	}
	e.stage.buf = wire.AppendOpen(e.stage.buf, o.id, 0, o.terms.Anchor, o.terms.Session)
	e.stage.count++
	e.queued += need
	e.counts.open++
	o.seq = 0 // the open's; the next record has 1
	return nil
}

// release takes o's slot away. The lock is held.
func (e *egress) release(o *Owner, err error) {
	if o.err != nil {
		return
	}
	o.err = err
	index := o.id.Index()
	e.owners[index] = nil
	e.gens[index]++
	e.free = append(e.free, index)
	e.m.opts.Metrics.LiveSlots.Add(-1)
	o.tell()
}

// owner finds the live slot with the id. The lock is held.
func (e *egress) owner(id wire.SlotID) *Owner {
	index := id.Index()
	if int(index) >= len(e.owners) {
		return nil
	}
	if o := e.owners[index]; o != nil && o.id == id {
		return o
	}
	return nil
}

// die ends the epoch: every slot that we own at the peer, and all that waits. It returns
// who is to be told. The lock is held.
func (e *egress) die(cause error) (ended []*Owner) {
	for _, o := range e.owners {
		if o != nil {
			e.release(o, cause)
			ended = append(ended, o)
		}
	}
	for _, b := range append(e.sealed, e.stage, e.writing) {
		if b != nil {
			b.retire(cause)
		}
	}
	e.stage, e.sealed, e.writing, e.queued = nil, nil, nil, 0
	e.kicked, e.due, e.lingers = false, false, false
	clear(e.waiting)
	e.waiting, e.first = e.waiting[:0], 0
	e.counts = recordCounts{}
	e.epoch, e.seq = e.m.nextEpoch(), 0
	return ended
}

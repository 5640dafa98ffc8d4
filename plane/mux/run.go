// SPDX-License-Identifier: Apache-2.0

package mux

import "sync/atomic"

// Run is what one batch brought for the inboxes of a poller, in the order of arrival: a
// stream whose consumer keeps up needs no buffer of its own. Once all of it was handled it
// goes back to its peer, which returns the credit.
type Run struct {
	peer   *Peer  // whose batch it was; nil: inboxes alone, to be looked into
	buf    []byte // the frames, one after another
	items  []arrival
	hungry bool // of a slot that may run out of credit
	next   *Run // in Peer.drained

	poller *Poller
	// cursor is how many items were begun, in the lower half, and how often another server
	// took over, in the upper half.
	cursor atomic.Uint64
	// Guarded by the lock of the server that has the run.
	skip   []uint32 // items whose credit returns in another way, in their order
	shared bool     // another server took over, and the first may still look at it
}

// arrival is a frame of an inbox, or one that is to be looked into. It is not changed once
// the run was handed over.
type arrival struct {
	box    *Inbox
	slot   *inSlot // nil: look
	off, n uint32  // of the frame in Run.buf
}

// run returns what gathers frames for poller, until the batch is through.
func (p *Peer) run(poller *Poller) *Run {
	in := &p.in
	for _, r := range in.runs {
		if r.poller == poller {
			return r
		}
	}
	var r *Run
	if last := len(in.spare) - 1; last >= 0 {
		r, in.spare[last] = in.spare[last], nil
		in.spare = in.spare[:last]
	} else {
		r = &Run{}
	}
	r.peer, r.poller = p, poller
	if cap(r.items) < in.records {
		r.items = make([]arrival, 0, in.records)
	}
	r.buf = newBuffer(in.bytes)
	in.runs = append(in.runs, r)
	return r
}

// add appends a frame of s.
func (r *Run) add(s *inSlot, frame []byte) {
	if cap(r.buf)-len(r.buf) < len(frame) {
		r.buf = grow(r.buf, len(frame))
	}
	r.items = append(r.items, arrival{s.inbox, s, uint32(len(r.buf)), uint32(len(frame))})
	r.buf = append(r.buf, frame...)
	r.hungry = r.hungry || s.hungry.Load()
}

// frame is that of an item.
func (r *Run) frame(it arrival) []byte { return r.buf[it.off : it.off+it.n : it.off+it.n] }

// done gives the run back. Its server has no more to do with it.
func (r *Run) done() {
	p := r.peer
	if p == nil {
		r.poller.again(r)
		return
	}
	if !r.shared {
		freeBuffer(r.buf)
		r.buf = nil
	}
	ask := r.hungry
	for { // r is another's as soon as it is in the list
		r.next = p.drained.Load()
		if p.drained.CompareAndSwap(r.next, r) {
			break
		}
	}
	if ask {
		p.askVisit()
	}
}

// mostSpareRuns is how many a peer keeps to be used again.
const mostSpareRuns = 64

// account notes what was handled, of all runs that came back. The ingress is locked.
func (p *Peer) account() {
	if p.drained.Load() == nil {
		return
	}
	for r := p.drained.Swap(nil); r != nil; {
		skip := r.skip
		for i := range r.items {
			if len(skip) > 0 && skip[0] == uint32(i) {
				skip = skip[1:]
				continue
			}
			it := &r.items[i]
			it.slot.waiting -= int(it.n)
			it.slot.read++
			p.dirty.add(it.slot.id.Index())
		}
		next := r.next
		if !r.shared && len(p.in.spare) < mostSpareRuns {
			r.empty()
			p.in.spare = append(p.in.spare, r)
		}
		r = next
	}
}

// empty makes the run as new.
func (r *Run) empty() {
	clear(r.items)
	r.items, r.skip = r.items[:0], r.skip[:0]
	r.hungry, r.next = false, nil
	r.cursor.Store(0)
}

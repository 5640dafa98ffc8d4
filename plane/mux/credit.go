// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"sync/atomic"
	"time"
)

// returns is how the credit of what was drained goes back to a peer: each drain names its
// slot, and a visit grants what all of them have, once in a while. It does not wait for
// long where a producer may run out of credit, that is with less than half of its window.
type returns struct {
	dirty   dirtySet
	drained atomic.Pointer[Run] // that were handled
	asked   atomic.Bool         // for a visit
	due     atomic.Bool         // it may be made
	visit   *time.Timer
	visited time.Time // of the writer
	grants  []grant   // of the writer: those that wait for a batch
}

// askVisit lets the credit that was drained return soon.
func (p *Peer) askVisit() {
	if p.asked.Load() || !p.asked.CompareAndSwap(false, true) {
		return
	}
	p.visit.Reset(p.m.opts.Linger)
}

// visitNow runs when the linger is over.
func (p *Peer) visitNow() {
	p.due.Store(true)
	p.kick(p.m.opts.Metrics.wakesControl)
}

// idle reports whether nothing was drained since the last visit.
func (r *returns) idle() bool { return r.drained.Load() == nil && r.dirty.empty() }

// collect walks the slots that were drained, if it is time for it.
func (p *Peer) collect() {
	if !p.asked.Load() || len(p.grants) > 0 { // one grant a slot waits at a time
		return
	}
	now := time.Now()
	if since := now.Sub(p.visited); since < p.m.opts.VisitFloor {
		if p.due.Swap(false) {
			p.visit.Reset(p.m.opts.VisitFloor - since)
		}
		return
	}
	p.visited = now
	p.due.Store(false)
	p.asked.Store(false) // before the walk: what is drained meanwhile asks again
	p.in.mu.Lock()
	p.account()
	visits := 0
	p.dirty.walk(func(index uint32) {
		if int(index) < len(p.in.slots) && p.in.slots[index] != nil {
			visits++
			p.grant(p.in.slots[index])
		}
	})
	p.m.opts.Metrics.DrainVisits.Add(float64(visits))
	p.in.mu.Unlock()
}

// returnAll has all credit return, little as it may be. The ingress is locked.
func (p *Peer) returnAll() {
	if !p.in.owes && p.idle() {
		return
	}
	p.in.owes = false
	p.account()
	for index, s := range p.in.slots {
		if s != nil && s.read+s.taken.Load() > 0 {
			s.hungry.Store(true)
			p.dirty.add(uint32(index))
		}
	}
	p.askVisit()
}

// grant returns the credit of s, or leaves it for later. The ingress is locked.
func (p *Peer) grant(s *inSlot) {
	if s.buffered.Load()+int64(s.waiting) >= int64(p.m.opts.SlotBytes) {
		p.in.owes = true // the rest is drained later
		return
	}
	if s.taken.Load() != 0 {
		s.read += s.taken.Swap(0)
	}
	window := int32(p.m.opts.Window)
	n := min(s.read, window-s.credit)
	if !s.hungry.Load() && n < window/4 {
		p.in.owes = p.in.owes || n > 0
		return
	}
	s.read = 0
	if s.credit += max(n, 0); s.credit >= p.half() {
		s.hungry.Store(false)
	}
	if n <= 0 {
		return
	}
	p.grants = append(p.grants, grant{s, uint32(n)})
}

// spend takes credit of s and reports whether there was so much. The ingress is locked.
func (p *Peer) spend(s *inSlot, records int32) bool {
	if s.credit -= records; s.credit < p.half() && !s.hungry.Load() {
		s.hungry.Store(true)
	}
	return s.credit >= 0
}

// half is the credit below which a slot is hungry.
func (p *Peer) half() int32 { return int32(p.m.opts.Window+1) / 2 }

// repost takes back credit that did not leave. The ingress is locked.
func (p *Peer) repost(list []grant) {
	for _, g := range list {
		p.spend(g.slot, int32(g.delta))
		g.slot.taken.Add(int32(g.delta))
		p.dirty.add(g.slot.id.Index())
	}
	p.m.opts.Metrics.CreditReposted.Add(float64(len(list)))
}

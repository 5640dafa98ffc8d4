// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"sync/atomic"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// inSlot is the consumer's end of a slot. What each record touches comes first, within
// one line of the processor's cache.
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

	hungry   atomic.Bool  // half of the window or more is used, so credit is not to wait
	taken    atomic.Int32 // records that were taken from the inbox, not granted again
	buffered atomic.Int64 // bytes in the inbox

	// Guarded by p.in.mu too.
	hold    map[uint32]held // nil: nothing is
	held    int             // bytes in hold
	suspect uint32          // since when records of it are missing, or may be lost; 0: none are
	bind    *Bind
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

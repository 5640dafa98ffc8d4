// SPDX-License-Identifier: Apache-2.0

package mux

import "sync"

// binds are the anchors that wait for a slot, in parts so that many may be made at once.
type binds struct {
	parts [16]struct {
		mu   sync.Mutex
		wait map[pair]*Bind
		_    [48]byte // each on a cache line of its own
	}
}

type pair struct{ anchor, session uint64 }

func (b *binds) part(anchor uint64) (mu *sync.Mutex, wait *map[pair]*Bind) {
	p := &b.parts[anchor%uint64(len(b.parts))]
	return &p.mu, &p.wait
}

func (b *binds) add(bind *Bind) {
	mu, wait := b.part(bind.Anchor)
	mu.Lock()
	defer mu.Unlock()
	if *wait == nil {
		*wait = map[pair]*Bind{}
	}
	(*wait)[pair{bind.Anchor, bind.Session}] = bind
}

// claim gives the waiting bind to s, once. stop was asked for meanwhile.
func (b *binds) claim(anchor, session uint64, s *inSlot) (bind *Bind, stop bool) {
	mu, wait := b.part(anchor)
	mu.Lock()
	defer mu.Unlock()
	bind = (*wait)[pair{anchor, session}]
	if bind == nil {
		return nil, false
	}
	delete(*wait, pair{anchor, session})
	s.bind = bind
	s.inbox = bind.Inbox
	s.tag = s.inbox.add(s)
	bind.slot = s
	return bind, bind.stop
}

// release takes back a bind that nobody has claimed; otherwise it returns who did.
func (b *binds) release(bind *Bind) (slot *inSlot, released bool) {
	mu, wait := b.part(bind.Anchor)
	mu.Lock()
	defer mu.Unlock()
	key := pair{bind.Anchor, bind.Session}
	if (*wait)[key] == bind {
		delete(*wait, key)
		return nil, true
	}
	return bind.slot, false
}

// stop remembers a wish for who claims the bind, or returns who did.
func (b *binds) stop(bind *Bind) *inSlot {
	mu, _ := b.part(bind.Anchor)
	mu.Lock()
	defer mu.Unlock()
	bind.stop = true
	return bind.slot
}

// leave says that the slot of a bind is gone.
func (b *binds) leave(bind *Bind) {
	mu, _ := b.part(bind.Anchor)
	mu.Lock()
	bind.slot = nil
	mu.Unlock()
}

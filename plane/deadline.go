// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// wheel has the deadlines of anchors that wait for a sender: in parts, each a ring of
// lists for a second of the future. An anchor is in at most one list, through links of
// its own, so that setting and clearing a deadline costs the same with ten anchors and
// with a million, and nothing stale stays behind.
type wheel struct {
	begun time.Time
	now   atomic.Uint32 // seconds since then, as they were looked at last
	part  [parts]wheelPart
}

const (
	wheelSeconds = 256     // later deadlines go round again
	farthest     = 1 << 31 // seconds, 68 years
)

type wheelPart struct {
	mu    sync.Mutex
	lists [wheelSeconds]*Anchor
	_     [56]byte
}

// links put an anchor into a list. Guarded by the part's lock.
type links struct {
	next, prev *Anchor
	second     uint32      // of the deadline, since the wheel began
	waits      atomic.Bool // written under the lock alone
}

// lookEvery is how often deadlines are looked at.
const lookEvery = time.Second

func (w *wheel) of(a *Anchor) *wheelPart { return &w.part[a.id%parts] }

// set has a's deadline be in d from now; negative or 0: it has none.
func (w *wheel) set(a *Anchor, d time.Duration) {
	if d <= 0 {
		w.clear(a)
		return
	}
	p := w.of(a)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unlink(a)
	// The clock is up to a look old, so one more.
	a.links.second = w.now.Load() + uint32(min((d-1)/lookEvery, farthest)) + 2
	p.link(a)
}

func (w *wheel) clear(a *Anchor) {
	if !a.links.waits.Load() {
		return // most are cleared twice
	}
	p := w.of(a)
	p.mu.Lock()
	p.unlink(a)
	p.mu.Unlock()
}

func (p *wheelPart) link(a *Anchor) {
	l := &a.links
	head := &p.lists[l.second%wheelSeconds]
	l.next, l.prev = *head, nil
	l.waits.Store(true)
	if *head != nil {
		(*head).links.prev = a
	}
	*head = a
}

func (p *wheelPart) unlink(a *Anchor) {
	l := &a.links
	if !l.waits.Load() {
		return
	}
	if l.prev != nil {
		l.prev.links.next = l.next
	} else {
		p.lists[l.second%wheelSeconds] = l.next
	}
	if l.next != nil {
		l.next.links.prev = l.prev
	}
	l.next, l.prev = nil, nil
	l.waits.Store(false)
}

// run hands anchors whose deadline has passed to expired, until ctx ends.
func (w *wheel) run(ctx context.Context, expired func(*Anchor)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	looked := uint32(0) // up to this second
	var due []*Anchor
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := uint32(time.Since(w.begun) / lookEvery)
		w.now.Store(now)
		for ; looked <= now; looked++ {
			for i := range w.part {
				p := &w.part[i]
				p.mu.Lock()
				for a := p.lists[looked%wheelSeconds]; a != nil; {
					next := a.links.next
					if a.links.second <= looked {
						p.unlink(a)
						due = append(due, a)
					}
					a = next
				}
				p.mu.Unlock()
			}
		}
		for _, a := range due {
			expired(a)
		}
		clear(due)
		due = due[:0]
	}
}

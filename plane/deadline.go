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
	p.link(a, w.now.Load()+uint32(min((d-1)/lookEvery, farthest))+2)
}

func (w *wheel) clear(a *Anchor) {
	if a.due.Load() == 0 {
		return // most are cleared twice
	}
	p := w.of(a)
	p.mu.Lock()
	p.unlink(a)
	p.mu.Unlock()
}

func (p *wheelPart) link(a *Anchor, due uint32) {
	head := &p.lists[due%wheelSeconds]
	if a.before, a.after = nil, *head; *head != nil {
		(*head).before = a
	}
	*head = a
	a.due.Store(due)
}

func (p *wheelPart) unlink(a *Anchor) {
	due := a.due.Load()
	if due == 0 {
		return
	}
	if a.before != nil {
		a.before.after = a.after
	} else {
		p.lists[due%wheelSeconds] = a.after
	}
	if a.after != nil {
		a.after.before = a.before
	}
	a.before, a.after = nil, nil
	a.due.Store(0)
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
					next := a.after
					if a.due.Load() <= looked {
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

// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// Handler is told what the inboxes of a poller have. Both methods may block: then another
// goroutine serves the other inboxes meanwhile.
type Handler interface {
	// Frame takes the next frame of an inbox of one source, whose tag is tag.
	Frame(b *Inbox, tag uint32, frame []byte)
	// Look takes all that waits in an inbox, with f (Inbox.Take), and tells of it (Use, Tell).
	Look(b *Inbox, f *Frames)
}

// Poller serves any number of inboxes with one goroutine: in order of arrival, without a
// lock, buffer or wake-up a stream.
//
// One server is active at a time. Where it is stuck in the handler another takes over what
// it had, and the inbox that it is stuck with is busy: its frames are kept in the inbox,
// and served by the first one as soon as it is back.
type Poller struct {
	h      Handler
	stuck  chan struct{} // a place for each
	wg     sync.WaitGroup
	active atomic.Pointer[server]
	ready  Ready[*Run]
	spare  *Run // of inboxes, to be used again; guarded by the lock of ready
}

// mostStuck is how many servers may be stuck before the rest waits for them.
const mostStuck = 1024

// NewPoller returns a poller that tells h, while Run runs.
func NewPoller(h Handler) *Poller {
	return &Poller{h: h, stuck: make(chan struct{}, mostStuck)}
}

// look has inboxes looked into.
func (p *Poller) look(list ...*Inbox) {
	q := &p.ready
	q.mu.Lock()
	last := len(q.list) - 1
	if last < 0 || q.list[last].peer != nil {
		r := p.spare
		if p.spare = nil; r == nil {
			r = &Run{poller: p}
		}
		q.list = append(q.list, r)
		last++
	}
	r := q.list[last]
	for _, b := range list {
		r.items = append(r.items, arrival{box: b})
	}
	q.unlock()
}

// again keeps a run of inboxes that was served.
func (p *Poller) again(r *Run) {
	if r.shared {
		return
	}
	r.empty()
	p.ready.mu.Lock()
	p.spare = r
	p.ready.mu.Unlock()
}

// Run serves until ctx ends, and then until no handler runs any more. It runs once.
func (p *Poller) Run(ctx context.Context) error {
	p.begin(ctx, &server{at: -1})
	p.relieve(ctx)
	p.wg.Wait()
	return ctx.Err()
}

func (p *Poller) begin(ctx context.Context, s *server) {
	p.active.Store(s)
	p.wg.Go(func() { p.serve(ctx, s) })
}

const (
	stuckAfter = 10 * time.Millisecond // with one item; seen after twice that at most
	lookRarely = 160 * time.Millisecond
)

// relieve has another server take over where the active one is stuck.
func (p *Poller) relieve(ctx context.Context) {
	every := stuckAfter
	var seen struct {
		run    *Run
		cursor uint64
	}
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		now := seen
		s := p.active.Load()
		if now.run = s.hand.Load(); now.run != nil {
			now.cursor = now.run.cursor.Load()
		}
		switch {
		case now.run == nil: // it waits
			every = min(2*every, lookRarely)
		case now != seen:
			every = stuckAfter
		default:
			every = stuckAfter
			select {
			case p.stuck <- struct{}{}:
				if next := s.retire(); next != nil {
					p.begin(ctx, next)
				} else {
					<-p.stuck
				}
			default: // too many are
			}
		}
		seen = now
		timer.Reset(every)
	}
}

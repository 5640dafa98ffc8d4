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
	// Look takes all that waits in an inbox, with f (Inbox.Take), and tells Drained.
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

	mu     sync.Mutex
	ready  []*Run
	spare  *Run // of inboxes, to be used again
	parked bool
	wake   chan struct{}
}

// mostStuck is how many servers may be stuck before the rest waits for them.
const mostStuck = 1024

// NewPoller returns a poller that tells h, while Run runs.
func NewPoller(h Handler) *Poller {
	return &Poller{h: h, stuck: make(chan struct{}, mostStuck), wake: make(chan struct{}, 1)}
}

// add hands over a run.
func (p *Poller) add(r *Run) {
	p.mu.Lock()
	p.ready = append(p.ready, r)
	p.unlock()
}

// look has inboxes looked into.
func (p *Poller) look(list ...*Inbox) {
	p.mu.Lock()
	last := len(p.ready) - 1
	if last < 0 || p.ready[last].peer != nil {
		r := p.spare
		if p.spare = nil; r == nil {
			r = &Run{poller: p}
		}
		p.ready = append(p.ready, r)
		last++
	}
	r := p.ready[last]
	for _, b := range list {
		r.items = append(r.items, arrival{box: b})
	}
	p.unlock()
}

// again keeps a run of inboxes that was served.
func (p *Poller) again(r *Run) {
	if r.shared {
		return
	}
	r.empty()
	p.mu.Lock()
	p.spare = r
	p.mu.Unlock()
}

// unlock gives back the lock and wakes who waits.
func (p *Poller) unlock() {
	wake := p.parked
	p.parked = false
	p.mu.Unlock()
	if wake {
		p.wake <- struct{}{} // it has room for the one who waits
	}
}

// await waits for runs and appends them to list.
func (p *Poller) await(ctx context.Context, list []*Run) ([]*Run, error) {
	for ctx.Err() == nil {
		p.mu.Lock()
		if len(p.ready) > 0 {
			list = append(list, p.ready...)
			clear(p.ready)
			p.ready = p.ready[:0]
			p.mu.Unlock()
			return list, nil
		}
		p.parked = true
		p.mu.Unlock()
		select {
		case <-p.wake:
		case <-ctx.Done():
		}
	}
	return list, ctx.Err()
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

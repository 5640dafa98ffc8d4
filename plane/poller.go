// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/velo-agent/velo-agent/plane/mux"
)

// Poller serves any number of anchors with one goroutine: no goroutine, channel or timer
// belongs to a stream. Its function is told each event of each anchor, in the stream's
// order, and may block: then another goroutine serves the others meanwhile.
type Poller struct {
	handle func(*Anchor, Event)
	ready  mux.Poller
	spares chan struct{} // a place for each goroutine more than one
	wg     sync.WaitGroup
	last   atomic.Pointer[server]
}

// mostBlocked is how many functions may block at a time before the rest waits for them.
const mostBlocked = 1024

// NewPoller returns a poller that tells handle of events; Run must run for it.
func NewPoller(handle func(*Anchor, Event)) *Poller {
	return &Poller{handle: handle, spares: make(chan struct{}, mostBlocked)}
}

// Add has the poller serve a, on which nobody may call Recv any more.
func (p *Poller) Add(a *Anchor) { a.inbox.Poll(&p.ready) }

// server is one goroutine of a poller.
type server struct {
	steps atomic.Uint64
	waits atomic.Bool // for anchors

	mu      sync.Mutex
	work    *work
	took    bool // work, from one that was stuck
	retired bool // another has taken its place, and its work
}

// work is anchors that have something, shared by who took them and who takes over.
type work struct {
	list []*mux.Inbox
	next atomic.Int64
}

// take returns the next anchor to serve, or nil.
func (w *work) take() *Anchor {
	i := int(w.next.Add(1)) - 1
	if i >= len(w.list) {
		return nil
	}
	return w.list[i].Owner.(*Anchor)
}

// Run serves until ctx ends, and then until no function runs any more.
func (p *Poller) Run(ctx context.Context) error {
	p.begin(ctx, &work{})
	p.relieve(ctx)
	p.wg.Wait()
	return ctx.Err()
}

// begin starts a goroutine that serves, w first.
func (p *Poller) begin(ctx context.Context, w *work) {
	s := &server{work: w, took: true}
	p.last.Store(s)
	p.wg.Go(func() { p.serve(ctx, s) })
}

const (
	blockedAfter = 10 * time.Millisecond // in one function; seen after twice that at most
	lookRarely   = 160 * time.Millisecond
)

// relieve has another goroutine take over where one is stuck in a function.
func (p *Poller) relieve(ctx context.Context) {
	every, seen := blockedAfter, uint64(0)
	timer := time.NewTimer(every)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		s := p.last.Load()
		switch steps := s.steps.Load(); {
		case s.waits.Load():
			every = min(2*every, lookRarely)
		case steps != seen:
			seen, every = steps, blockedAfter
		default:
			every = blockedAfter
			select {
			case p.spares <- struct{}{}:
				p.begin(ctx, s.retire())
			default: // too many are stuck
			}
		}
		timer.Reset(every)
	}
}

// retire takes the work of one that is stuck; it ends once it is no longer.
func (s *server) retire() *work {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
	return s.work
}

func (s *server) isRetired() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired
}

// accept makes w the server's work and returns what it had before, to be used again.
func (s *server) accept(w *work) (old *work, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return nil, false
	}
	old, s.work = s.work, w
	if s.took {
		s.took, old = false, &work{} // another may still look at what was taken over
	}
	return old, true
}

func (p *Poller) serve(ctx context.Context, s *server) {
	var f mux.Frames
	w, spare := s.work, &work{}
	for {
		for a := w.take(); a != nil; a = w.take() {
			p.serveOne(s, a, &f)
		}
		if s.isRetired() {
			break
		}
		s.waits.Store(true)
		list, err := p.ready.Next(ctx, spare.list[:0])
		s.waits.Store(false)
		if err != nil {
			break
		}
		spare.list = list
		spare.next.Store(0)
		old, ok := s.accept(spare)
		if !ok {
			p.ready.Add(list...)
			break
		}
		w, spare = spare, old
	}
	if s.isRetired() {
		<-p.spares
	}
}

// serveOne tells all that waits in an anchor, unless another does, who then goes on.
func (p *Poller) serveOne(s *server, a *Anchor, f *mux.Frames) {
	if !a.claim() {
		return
	}
	for {
		p.drain(s, a, f)
		if a.serving.CompareAndSwap(serving, idle) {
			return
		}
		a.serving.Store(serving)
	}
}

// Of Anchor.serving.
const (
	idle int32 = iota
	serving
	again // something came while it was served
)

func (a *Anchor) claim() bool {
	for {
		switch a.serving.Load() {
		case idle:
			if a.serving.CompareAndSwap(idle, serving) {
				return true
			}
		case serving:
			if a.serving.CompareAndSwap(serving, again) {
				return false
			}
		default:
			return false
		}
	}
}

// drain tells all that waits in an anchor. What comes meanwhile has it served once more.
func (p *Poller) drain(s *server, a *Anchor, f *mux.Frames) {
	a.inbox.Take(f)
	s.steps.Add(1)
	for {
		frame, tag, ok := f.Next()
		if !ok {
			break
		}
		p.handle(a, a.event(f, frame, tag))
	}
	a.tellDrained(f)
}

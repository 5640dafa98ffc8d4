// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
)

// server is one goroutine of a poller.
type server struct {
	frames Frames
	hand   atomic.Pointer[Run] // the run at hand; nil: it waits for some

	mu      sync.Mutex
	list    []*Run
	at      int    // of the run at hand
	first   uint64 // the cursor at which nothing of the run at hand is begun by this server
	retired bool
	left    arrival // what it is stuck with, once it is retired; no box: with nothing
}

// next returns the run to go on with, nil: there is none.
func (s *server) next() (r *Run, retired bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return nil, true
	}
	if s.at++; s.at < len(s.list) {
		r = s.list[s.at]
		s.first = r.cursor.Load()
	} else {
		clear(s.list)
		s.list, s.at = s.list[:0], -1
	}
	s.hand.Store(r)
	return r, false
}

// retire takes the work of a server that is stuck, for another.
func (s *server) retire() *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.hand.Load()
	if r == nil {
		return nil
	}
	begun := r.cursor.Load()
	for {
		if int(uint32(begun)) > len(r.items) {
			return nil // it is through with it just now
		}
		if r.cursor.CompareAndSwap(begun, begun+1<<32) {
			break
		}
		begun = r.cursor.Load()
	}
	s.retired, r.shared = true, true
	if begun != s.first {
		k := uint32(begun) - 1
		s.left = r.items[k]
		s.left.box.busy.Store(true)
		r.skip = append(r.skip, k)
	}
	return &server{list: slices.Clone(s.list[s.at:]), at: -1}
}

func (p *Poller) serve(ctx context.Context, s *server) {
	var fresh []*Run
	for {
		r, retired := s.next()
		if retired {
			break
		}
		if r != nil {
			if !p.handle(s, r) {
				p.finish(s)
				break
			}
			continue
		}
		if ctx.Err() != nil {
			return
		}
		var err error
		if fresh, err = p.ready.Await(ctx, fresh[:0]); err != nil {
			return
		}
		s.mu.Lock()
		s.list = append(s.list, fresh...)
		s.mu.Unlock()
		clear(fresh)
	}
	<-p.stuck
}

// handle serves a run; false: another took it over.
func (p *Poller) handle(s *server, r *Run) bool {
	begun := s.first
	for k := int(uint32(begun)); k < len(r.items); k++ {
		it := r.items[k]
		if it.box.busy.Load() {
			kept, mine := s.keep(r, it)
			if !mine {
				return false
			}
			if begun++; kept {
				continue
			}
		} else if !r.cursor.CompareAndSwap(begun, begun+1) {
			return false
		} else {
			begun++
		}
		switch {
		case it.box.closed.Load():
			if it.slot != nil {
				it.slot.unwanted()
			}
		case it.slot == nil:
			p.h.Look(it.box, &s.frames)
		default:
			p.h.Frame(it.box, it.slot.tag, r.frame(it))
		}
	}
	if !r.cursor.CompareAndSwap(begun, begun+1) {
		return false
	}
	r.done()
	return true
}

// keep begins an item whose inbox seems to be busy. kept: it is, and gets the frame.
// mine: no other server took over.
func (s *server) keep(r *Run, it arrival) (kept, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.retired {
		return false, false
	}
	begun := r.cursor.Add(1)
	if kept = it.box.keep(r, it); kept {
		s.first = begun // nothing to be stuck with
		r.skip = append(r.skip, uint32(begun)-1)
	}
	return kept, true
}

// finish serves what a retired server was stuck with, and what came for it meanwhile.
func (p *Poller) finish(s *server) {
	s.mu.Lock() // its successor has begun
	left := s.left
	s.mu.Unlock()
	if left.box == nil {
		return
	}
	if left.slot != nil {
		left.slot.drained(1, int(left.n))
	}
	for !left.box.rest() {
		p.h.Look(left.box, &s.frames)
	}
}

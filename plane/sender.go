// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// outlet is how a sender's frames reach the consumer: a slot, an inbox of this process, a
// connection of its own.
type outlet interface {
	Item(b []byte) error
	Frame(frame []byte) error
	Finish(terminal []byte) error
	Wait(ctx context.Context) error
	Retired(ctx context.Context) error
	// Cancelled ends the stream because its consumer said so in a message.
	Cancelled()
}

// Sender is the producer's end of a stream. Sending is one goroutine's at a time. One of
// Finalize, Detach, Fail and Close ends it.
type Sender struct {
	out  outlet // first: a slot lies before it
	n    *Node
	id   uint64        // by which the consumer stops or cancels it; 0: it is on this node
	to   wire.WorkerID // who consumes; nobody else may stop it
	key  string
	over bool // it was ended here

	mu      sync.Mutex
	stopped bool
	err     error         // why the consumer or the connection ended it
	stop    chan struct{} // nil: nobody asked yet; likewise
	done    chan struct{}
	feeder  atomic.Pointer[Feeder]
	early   atomic.Bool // there was room before there was a feeder
}

// remote is a sender to another node, and its slot. What each record touches of both is
// one line of the processor's cache.
type remote struct {
	slot mux.Owner
	Sender
	_ [16]byte // so that its place in memory is a multiple of such lines
}

// carry gives the sender its outlet.
func (s *Sender) carry(out outlet, key string) {
	s.mu.Lock()
	s.out, s.key = out, key
	early := s.err != nil
	s.mu.Unlock()
	if early { // cancelled while it was being attached
		out.Cancelled()
	}
}

// cancelled ends a sender whose consumer says so in a message.
func (s *Sender) cancelled() {
	s.mu.Lock()
	out := s.out
	if out == nil && s.err == nil {
		s.err = ErrCancelled
	}
	s.mu.Unlock()
	if out != nil {
		out.Cancelled() // it tells
	}
}

// Transport is the key of what carries the stream: wire.KeyV1, wire.KeyV2,
// wire.KeyTCPStream, or "" on the consumer's own node.
func (s *Sender) Transport() string { return s.key }

// Send sends a record, which the caller may use again at once. It waits while the
// consumer has too many unread. ErrCancelled, ErrPeerLost: nothing more can be sent.
func (s *Sender) Send(ctx context.Context, b []byte) error { return s.send(ctx, s.out.Item, b) }

// send waits while put has no room for b.
func (s *Sender) send(ctx context.Context, put func([]byte) error, b []byte) error {
	for {
		err := put(b)
		if err != ErrWouldBlock { // as it is, never wrapped
			return s.explain(err)
		}
		if err := s.out.Wait(ctx); err != nil {
			return err
		}
	}
}

// TrySend is Send, but returns ErrWouldBlock where Send would wait. The Feeder then tells
// when to try again.
func (s *Sender) TrySend(b []byte) error { return s.explain(s.out.Item(b)) }

// SendError sends an error of the application; the stream goes on.
func (s *Sender) SendError(ctx context.Context, text string) error {
	return s.send(ctx, s.out.Frame, wire.AppendError(nil, wire.SenderError, text))
}

func (s *Sender) explain(err error) error {
	switch {
	case err == nil || err == ErrWouldBlock:
	case errors.Is(err, mux.ErrEnded):
		return ErrClosed
	case errors.Is(err, ErrCancelled), errors.Is(err, ErrPeerLost):
		s.onEnd(err) // the hook may come a moment later
	}
	return err
}

// Finalize ends the stream: it is complete.
func (s *Sender) Finalize() error { return s.finish(wire.FrameFinalized) }

// Detach leaves the stream; another sender may attach.
func (s *Sender) Detach() error { return s.finish(wire.FrameDetached) }

// Fail ends the stream with an error.
func (s *Sender) Fail(text string) error {
	return s.finish(wire.AppendError(nil, wire.TransportError, text))
}

// Close ends a stream that was not ended: its consumer sees that it was dropped.
func (s *Sender) Close() error {
	if err := s.finish(wire.FrameDropped); !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

func (s *Sender) finish(terminal []byte) error {
	if s.over {
		return ErrClosed
	}
	s.over = true
	s.forget()
	return s.explain(s.out.Finish(terminal))
}

// Retired waits until all that was sent has left this process, after the stream was ended.
// ErrPeerLost: it did not. It says nothing of what the consumer has read.
func (s *Sender) Retired(ctx context.Context) error {
	err := s.out.Retired(ctx)
	if errors.Is(err, mux.ErrNotEnded) {
		return fmt.Errorf("waiting for a stream to leave: %w", err)
	}
	return err
}

// Stopped is closed when the consumer asked the sender to finish.
func (s *Sender) Stopped() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return channel(&s.stop, s.stopped)
}

// Done is closed when nothing more can be sent; Err then says why.
func (s *Sender) Done() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return channel(&s.done, s.err != nil)
}

// channel makes c where somebody asks for it: most streams need none.
func channel(c *chan struct{}, closed bool) <-chan struct{} {
	if *c == nil {
		*c = make(chan struct{})
		if closed {
			close(*c)
		}
	}
	return *c
}

// StopRequested is whether the consumer asked the sender to finish.
func (s *Sender) StopRequested() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stopped
}

// Err says why the consumer's side ended the stream: ErrCancelled, ErrPeerLost; nil: it
// did not.
func (s *Sender) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Sender) onStop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return
	}
	if s.stopped = true; s.stop != nil {
		close(s.stop)
	}
}

// forget has nobody find the sender any more.
func (s *Sender) forget() {
	if s.id != 0 {
		s.n.senders.remove(s.id)
	}
}

func (s *Sender) onEnd(err error) {
	s.forget()
	s.mu.Lock()
	if s.err == nil {
		s.err = err
		if s.done != nil {
			close(s.done)
		}
	}
	s.mu.Unlock()
	s.onRoom()
}

// onRoom runs with locks of the mux held.
func (s *Sender) onRoom() {
	f := s.feeder.Load()
	if f == nil {
		s.early.Store(true)
		if f = s.feeder.Load(); f == nil || !s.early.Swap(false) {
			return
		}
	}
	f.ready.Add(s)
}

// told is a Sender as the mux sees it.
type told Sender

func (t *told) OnStop()         { (*Sender)(t).onStop() }
func (t *told) OnEnd(err error) { (*Sender)(t).onEnd(err) }
func (t *told) OnRoom()         { (*Sender)(t).onRoom() }

// Feeder gathers senders that may send again after ErrWouldBlock, or whose stream has
// ended, for one goroutine that feeds many. The zero value is ready.
type Feeder struct{ ready mux.Ready[*Sender] }

// Add has the feeder tell of s from now on.
func (f *Feeder) Add(s *Sender) {
	s.feeder.Store(f)
	if s.early.Swap(false) {
		f.ready.Add(s)
	}
}

// Next waits for senders to try again and appends them to list.
func (f *Feeder) Next(ctx context.Context, list []*Sender) ([]*Sender, error) {
	return f.ready.Await(ctx, list)
}

// Ready appends the senders to try again to list, if there are any.
func (f *Feeder) Ready(list []*Sender) []*Sender { return f.ready.Take(list) }

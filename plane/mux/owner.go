// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
	"errors"
	"math"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// Terms are what a consumer agreed to, in an attach answer or a ticket.
type Terms struct {
	Anchor  uint64 // the anchor's id at the consumer, with its MPSC bit
	Session uint64
	Credit  uint32
	Version wire.Version
	Beat    uint32 // ticks between two heartbeats; 0: none
}

// Producer is told what the consumer wants, on the goroutine of a connection. It must not
// block.
type Producer interface {
	OnStop()         // finish; what is on the way is still wanted
	OnEnd(err error) // ErrCancelled, ErrPeerLost: nothing more can be sent
	OnRoom()         // something refused with ErrWouldBlock may be tried again; with locks held
}

// Hooks is a Producer of functions, each of which may be nil.
type Hooks struct {
	Stop func()
	End  func(err error)
	Room func()
}

// OnStop implements Producer.
func (h Hooks) OnStop() {
	if h.Stop != nil {
		h.Stop()
	}
}

// OnEnd implements Producer.
func (h Hooks) OnEnd(err error) {
	if h.End != nil {
		h.End(err)
	}
}

// OnRoom implements Producer.
func (h Hooks) OnRoom() {
	if h.Room != nil {
		h.Room()
	}
}

// Owner is the producer's end of a slot. One goroutine at a time may send and Wait; the
// other methods may be called by any. What each record touches comes last, within one line
// of the processor's cache, and has room there for what leads to the Owner.
type Owner struct {
	terms Terms
	hooks Producer

	// Guarded by p.out.mu.
	room   Room  // of who was refused
	err    error // why nothing can be sent; lost: why its terminal was
	p      *Peer // not guarded, as id is not
	id     wire.SlotID
	seq    uint32
	credit uint32
	beatIn uint32 // ticks until the next look
	beaten bool   // something was sent since the last look at it
	spell  bool   // out of credit, and counted
	queued bool   // among p.out.waiting
	left   bool   // its terminal was written,
	lost   bool   // or lost
}

// Peer is where the stream goes.
func (o *Owner) Peer() *Peer { return o.p }

// Item stages b as one item of msgpack bin, which is what Rust's Bytes are.
// ErrWouldBlock: there is no credit or no room; Producer.OnRoom tells when to try again.
func (o *Owner) Item(b []byte) error {
	frame := wire.ItemBytesLen(len(b))
	e := &o.p.out
	e.mu.Lock()
	s, err := e.room(o, frame, false)
	if err != nil {
		return o.refused(err)
	}
	s.buf = wire.AppendItemBytes(wire.AppendRecordHeader(s.buf, wire.Data, o.id, o.seq, frame), b)
	e.staged(o, s)
	kick := e.wantsKick(o.first())
	e.mu.Unlock()
	if kick {
		o.p.kick(o.p.m.opts.Metrics.wakesFrame)
	}
	return nil
}

// Frame stages a whole stream frame that is no terminal, as Item does.
func (o *Owner) Frame(frame []byte) error {
	e := &o.p.out
	e.mu.Lock()
	s, err := e.room(o, len(frame), false)
	if err != nil {
		return o.refused(err)
	}
	s.buf = append(wire.AppendRecordHeader(s.buf, wire.Data, o.id, o.seq, len(frame)), frame...)
	e.staged(o, s)
	kick := e.wantsKick(o.first())
	e.mu.Unlock()
	if kick {
		o.p.kick(o.p.m.opts.Metrics.wakesFrame)
	}
	return nil
}

// first says that the stream's first record was staged, for which somebody waits: it is not
// held to gather others. The egress is locked.
func (o *Owner) first() bool { return o.seq == 1 && o.p.m.opts.Flush.Gather > 0 }

// refused gives back the lock. What is held waits no longer: no more comes from o.
func (o *Owner) refused(err error) error {
	e := &o.p.out
	kick := e.lingers && e.wantsKick(true)
	e.mu.Unlock()
	if kick {
		o.p.kick(o.p.m.opts.Metrics.wakesFrame)
	}
	return err
}

// Wait waits until something that was refused with ErrWouldBlock may be tried again.
func (o *Owner) Wait(ctx context.Context) error {
	e := &o.p.out
	e.mu.Lock()
	if o.room.wants {
		o.p.m.opts.Metrics.ProducerWaits.Inc()
	}
	e.mu.Unlock()
	return o.room.Wait(ctx, &e.mu)
}

// Finish stages the terminal and ends the slot. It needs no credit and waits for nothing.
func (o *Owner) Finish(terminal []byte) error { return o.finish(terminal, ErrEnded) }

// Cancelled ends the stream because its consumer said so by other means than the mux;
// the slot is closed in order. Producer.OnEnd is told.
func (o *Owner) Cancelled() {
	if o.finish(wire.FrameDropped, ErrCancelled) == nil {
		o.hooks.OnEnd(ErrCancelled)
	}
}

func (o *Owner) finish(terminal []byte, as error) error {
	e := &o.p.out
	e.mu.Lock()
	s, err := e.room(o, len(terminal), true)
	if err != nil {
		e.mu.Unlock()
		return err
	}
	s.buf = append(wire.AppendRecordHeader(s.buf, wire.Data, o.id, o.seq, len(terminal)), terminal...)
	s.buf = wire.AppendClose(s.buf, o.id, next(o.seq), wire.TerminalSent)
	s.count++
	e.staged(o, s)
	s.ends = append(s.ends, o)
	e.release(o, as)
	e.counts.close++
	kick := e.wantsKick(o.seq == 1 || e.m.opts.Flush.Gather <= 0) // else it gathers as records do
	e.mu.Unlock()
	if kick {
		o.p.kick(o.p.m.opts.Metrics.wakesFrame)
	}
	return nil
}

// Retired waits until the terminal of Finish was handed to the kernel, all before it too.
// ErrPeerLost: it was lost on the way. It says nothing of what the consumer has read.
func (o *Owner) Retired(ctx context.Context) error {
	e := &o.p.out
	for {
		e.mu.Lock()
		switch {
		case o.err == nil:
			defer e.mu.Unlock()
			return ErrNotEnded
		case !errors.Is(o.err, ErrEnded):
			defer e.mu.Unlock()
			return o.err
		case o.left:
			defer e.mu.Unlock()
			return nil
		}
		o.room.Refuse()
		e.mu.Unlock()
		if err := o.room.Wait(ctx, &e.mu); err != nil {
			return err
		}
	}
}

// retire tells those whose terminals are in the batch what became of it. The egress is
// locked.
func (b *batch) retire(cause error) {
	for _, o := range b.ends {
		o.left = true
		if cause != nil && errors.Is(o.err, ErrEnded) {
			o.lost, o.err = true, cause
		}
		o.tell()
	}
}

// Err says why nothing can be sent any more, or nil.
func (o *Owner) Err() error {
	o.p.out.mu.Lock()
	defer o.p.out.mu.Unlock()
	return o.over()
}

// over says why nothing can be sent any more. The egress is locked.
func (o *Owner) over() error {
	if o.lost {
		return ErrEnded
	}
	return o.err
}

// next is the number after a record's; it saturates, as velo's does.
func next(seq uint32) uint32 {
	if seq == math.MaxUint32 {
		return seq
	}
	return seq + 1
}

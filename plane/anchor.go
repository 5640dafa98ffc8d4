// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// Anchor is the consumer's end of a stream. Reading is one goroutine's at a time; Close
// and Stop may be called by any.
//
// It is three lines of the processor's cache: with each record a poller touches the first,
// Recv the first two.
type Anchor struct {
	value  any
	inbox  mux.Inbox
	reader *reader // nil: nobody has called Recv

	n    *Node
	id   uint64
	opts *AnchorOptions // but for Value; most anchors of a node share them

	// Its place in a list of the wheel. Guarded by the lock of that.
	before, after *Anchor
	due           atomic.Uint32 // the second since the wheel began; 0: it is in none. Written under the lock alone

	// Guarded by mu.
	state   anchorState
	stopped bool
	origin  *origin // nil: nobody has a ticket or was attached
	mu      sync.Mutex
}

// reader is of the goroutine that calls Recv; a poller needs none. With each record it
// touches the first of two lines of the processor's cache.
type reader struct {
	frames mux.Frames
	ended  error    // what Recv returns for good
	_      [48]byte // the allocator places 128 bytes at multiples of that
}

type anchorState uint8

const (
	free     anchorState = iota // nobody may send
	prebound                    // who has the ticket may
	attached
	late // nobody came in time; the consumer has not read that yet
	gone
)

// NewAnchor makes an anchor. Close it unless its stream was read to the end. ErrDraining:
// the node begins no stream any more.
func (n *Node) NewAnchor(o AnchorOptions) (*Anchor, error) {
	a := &Anchor{n: n, id: secret(), opts: n.anchorOptions(o), value: o.Value}
	if o.MPSC {
		a.id |= wire.MPSCBit
	}
	a.inbox.Owner = a
	n.anchors.add(a.id, a)
	err := n.refuses() // asked after it was counted, so that Drain misses none
	if err == nil && n.anchors.size.Load() > int64(n.opts.MaxAnchors) {
		err = fmt.Errorf("%w anchors: %d", ErrTooMany, n.opts.MaxAnchors)
	}
	if err != nil {
		a.leave(nil)
		return nil, err
	}
	n.deadlines.set(a, a.opts.Unattached)
	return a, nil
}

// Handle is what a producer attaches to.
func (a *Anchor) Handle() wire.Handle { return wire.Handle{Hi: a.n.Worker(), Lo: a.id} }

// Value is that of the AnchorOptions.
func (a *Anchor) Value() any { return a.value }

func (a *Anchor) mpsc() bool { return a.id&wire.MPSCBit != 0 }

// Ticket lets whoever has it send the first record without an attach round trip. It is
// for one sender of version v (0: a Go node, or velo 0.17 and later), once, within the
// accept window. ErrDraining: the node begins no stream any more.
func (a *Anchor) Ticket(v wire.Version) (*wire.Ticket, error) {
	if a.mpsc() {
		return nil, fmt.Errorf("%w: an anchor of many senders has none", ErrTicket)
	}
	v = cmp.Or(v, wire.V2)
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.n.refuses(); err != nil { // with the lock, as Drain looks at the anchor
		return nil, err
	}
	if a.state != free {
		return nil, fmt.Errorf("%w: the anchor has a ticket or a sender already", ErrTicket)
	}
	session := a.newBind(wire.Handle{})
	a.state = prebound
	a.n.deadlines.set(a, a.n.opts.AcceptWindow)
	return &wire.Ticket{
		TransportKey: v.Key(), HeartbeatIntervalMS: uint64(a.opts.Heartbeat.Milliseconds()), RoutingSessionID: session,
		InitialCredit: a.n.mux.Window(), SlotByteBudget: a.n.mux.SlotBytes(),
	}, nil
}

// Recv returns the next record, valid until the next call. io.EOF: the stream is
// complete. ErrDetached: the sender left, go on reading for the next one. *SenderError:
// an error of the sender's application, go on reading. ErrDropped, *TransportError,
// ErrUnattached, ErrMalformed: the stream ended before its end. ErrClosed, or ctx's error.
func (a *Anchor) Recv(ctx context.Context) ([]byte, error) {
	var e Event
	if err := a.next(ctx, &e); err != nil {
		return nil, err
	}
	if err := e.Error(); err != nil {
		return nil, err
	}
	return e.Data, nil
}

// RecvEvent is Recv for an anchor of many senders: each of them may end, and the others
// go on. An error is the end of the anchor or ctx's.
func (a *Anchor) RecvEvent(ctx context.Context) (e Event, err error) {
	err = a.next(ctx, &e)
	return e, err
}

// next is RecvEvent with little on the stack: there is a goroutine for each stream, and
// those of Go begin with 2 KiB.
func (a *Anchor) next(ctx context.Context, e *Event) error {
	r := a.reader
	if r == nil {
		r = &reader{}
		a.reader = r
	}
	for r.frames.N == 0 {
		a.inbox.Tell(&r.frames)
		if err := a.inbox.Await(ctx, &r.frames); err != nil {
			return r.over(err)
		}
	}
	if tag, last := a.event(e, &r.frames); last {
		if stop := a.inbox.Unwatch(); stop != nil {
			stop() // here, as it goes deep, and so does what follows
		}
		a.ends(e, tag)
	}
	if r.frames.Used >= usedUntold {
		a.inbox.Tell(&r.frames)
	}
	return nil
}

// Waiting reports whether Recv would return at once.
func (a *Anchor) Waiting() bool { return a.reader != nil && a.reader.frames.N > 0 || !a.inbox.Empty() }

// usedUntold is how many records are read before the sender is told of them, where more
// wait to be read.
const usedUntold = 8

// event decodes the next frame of f and notes that it was used. last: ends is to be called.
func (a *Anchor) event(e *Event, f *mux.Frames) (tag uint32, last bool) {
	frame, tag, _ := f.Next()
	e.read(frame)
	if a.mpsc() {
		e.Sender, _ = a.inbox.Source(tag).(uint64)
	}
	if e.Ends() && !(a.mpsc() && e.Err != nil) { // of many senders one may err, and go on
		a.inbox.Tell(f)
		return tag, true
	}
	a.inbox.Use(f, tag, len(frame))
	return tag, false
}

// ends takes a sender's last event.
func (a *Anchor) ends(e *Event, tag uint32) {
	if a.mpsc() || e.Kind == wire.Detached && e.Err == nil {
		a.inbox.Release(tag)
		if a.goesOn(e.Sender) {
			return
		}
	}
	var why error
	if e.Err != nil { // malformed: it may go on sending
		why = ErrCancelled
	}
	if a.leave(why) == late {
		e.Err = ErrUnattached
	}
	if r := a.reader; r != nil {
		if r.ended = e.Error(); e.Data == nil {
			r.frames.Free()
		}
	}
}

// goesOn has the anchor wait for its other senders, or for the next, and reports whether
// it does: nobody came in time for one that is late.
func (a *Anchor) goesOn(without uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.state == late:
		return false
	case a.state == gone:
		return true // Recv is told why
	case a.mpsc():
		a.forget(without)
	default:
		a.state, a.origin = free, nil
	}
	a.await()
	return true
}

// await gives the next sender its time to come to an anchor that has none; while the node
// drains nobody can. The lock is held.
func (a *Anchor) await() {
	switch {
	case a.state != free || !a.alone():
	case a.n.draining.Load():
		a.tooLate()
	default:
		a.n.deadlines.set(a, a.opts.Unattached)
	}
}

// tooLate ends the stream of an anchor to which nobody came. The lock is held.
func (a *Anchor) tooLate() {
	a.state = late
	a.n.anchors.remove(a.id)
	a.n.deadlines.clear(a)
	_ = a.n.mux.NewLocal(&a.inbox, nil, mux.Hooks{}).Finish(wire.FrameDropped) // closed meanwhile: nobody is to know
}

// over says why nothing more comes, where that is why the inbox gives nothing: a stream
// that has ended was closed.
func (r *reader) over(err error) error {
	if !errors.Is(err, mux.ErrClosed) {
		return err
	}
	if r.ended == nil {
		r.ended = ErrClosed
	}
	return r.ended
}

// Stop asks the present sender, or the next one, to finish; of many each, and those that
// come later. What they have sent and still send comes all the same.
func (a *Anchor) Stop() {
	a.mu.Lock()
	a.stopped = true
	all := a.sources()
	a.mu.Unlock()
	for i := range all {
		a.n.stopSource(&all[i])
	}
}

// Close ends the stream from the consumer's side: its senders are told, what was not
// read is forgotten. It may be called more than once.
func (a *Anchor) Close() error {
	a.leave(ErrCancelled)
	return nil
}

// leave takes the anchor out of the node, and returns what it was before. why is what its
// senders end with; nil: they have ended.
func (a *Anchor) leave(why error) anchorState {
	a.mu.Lock()
	was, o := a.state, a.origin
	if was == gone {
		a.mu.Unlock()
		return was
	}
	a.state, a.origin = gone, nil
	a.mu.Unlock()
	a.n.anchors.remove(a.id)
	a.n.deadlines.clear(a)
	if why != nil && o != nil {
		o.end(a.n, why)
	}
	a.inbox.Close()
	return was
}

// expired runs when nobody came in time: the consumer sees its stream end.
func (n *Node) expired(a *Anchor) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := a.origin
	waits := a.state == free && a.alone() || a.state == prebound || a.state == attached && !o.claimed
	if !waits || !n.released(o) {
		return // it came just now
	}
	if a.state != free {
		n.metrics.Reaped.Inc()
	}
	a.tooLate()
}

// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// Anchor is the consumer's end of a stream. Reading is one goroutine's at a time; Close
// and Stop may be called by any.
type Anchor struct {
	n     *Node
	id    uint64
	opts  AnchorOptions
	inbox mux.Inbox
	links links

	// Of the reader.
	frames mux.Frames
	unread drained
	ended  error

	state   anchorState // guarded by mu, as all that follows
	mu      sync.Mutex
	claimed bool // the present bind was
	stopped bool
	session uint64
	bind    *mux.Bind   // SPSC, over the mux
	cancel  wire.Handle // where to cancel an attached stream; zero: it came by ticket
	local   *mux.Local
	conn    *inStream          // over tcp-stream
	senders map[uint64]*source // MPSC, by sender id
	lastID  uint64
}

type anchorState uint8

const (
	free     anchorState = iota // nobody may send
	prebound                    // who has the ticket may
	attached
	late // nobody came in time; the consumer has not read that yet
	gone
)

// source is one sender of an MPSC anchor.
type source struct {
	id     uint64
	bind   *mux.Bind
	cancel wire.Handle
	local  *mux.Local
	conn   *inStream
}

// drained is what was read and not told yet.
type drained struct {
	tag, records uint32
	bytes        int
}

// NewAnchor makes an anchor. Close it unless its stream was read to the end.
func (n *Node) NewAnchor(o AnchorOptions) (*Anchor, error) {
	if n.closed.Load() {
		return nil, ErrClosed
	}
	if n.anchors.size.Load() >= int64(n.opts.MaxAnchors) {
		return nil, fmt.Errorf("%w anchors: %d", ErrTooMany, n.opts.MaxAnchors)
	}
	o.Heartbeat = cmp.Or(o.Heartbeat, n.opts.Heartbeat)
	if o.Unattached == 0 && !o.MPSC { // velo's anchors of many senders wait for ever
		o.Unattached = n.opts.Unattached
	}
	a := &Anchor{n: n, id: secret(), opts: o}
	if o.MPSC {
		a.id |= wire.MPSCBit
	}
	a.inbox.Owner = a
	n.anchors.add(a.id, a)
	n.deadlines.set(a, o.Unattached)
	return a, nil
}

// Handle is what a producer attaches to.
func (a *Anchor) Handle() wire.Handle { return wire.Handle{Hi: a.n.Worker(), Lo: a.id} }

// Value is that of the AnchorOptions.
func (a *Anchor) Value() any { return a.opts.Value }

// Ticket lets whoever has it send the first record without an attach round trip. It is
// for one sender of version v (0: a Go node, or velo 0.17 and later), once, within the
// accept window.
func (a *Anchor) Ticket(v wire.Version) (*wire.Ticket, error) {
	if a.opts.MPSC {
		return nil, fmt.Errorf("%w: an anchor of many senders has none", ErrTicket)
	}
	v = cmp.Or(v, wire.V2)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != free {
		return nil, fmt.Errorf("%w: the anchor has a ticket or a sender already", ErrTicket)
	}
	a.newBind()
	a.state = prebound
	a.n.deadlines.set(a, a.n.opts.AcceptWindow)
	return &wire.Ticket{
		TransportKey: v.Key(), HeartbeatIntervalMS: uint64(a.opts.Heartbeat.Milliseconds()), RoutingSessionID: a.session,
		InitialCredit: a.n.mux.Window(), SlotByteBudget: a.n.mux.SlotBytes(),
	}, nil
}

// newBind lets a slot claim the anchor. The lock is held.
func (a *Anchor) newBind() {
	a.session = secret()
	a.claimed = false
	b := &mux.Bind{Anchor: a.id, Session: a.session, Inbox: &a.inbox}
	b.Claimed = func() { a.wasClaimed(b) }
	a.bind = b
	a.n.mux.Bind(b)
	if a.stopped {
		a.n.mux.Stop(b)
	}
}

// wasClaimed runs when the stream has begun.
func (a *Anchor) wasClaimed(b *mux.Bind) {
	a.mu.Lock()
	mine := a.bind == b
	if mine {
		a.claimed = true
		if a.state == prebound {
			a.state = attached
		}
	}
	a.mu.Unlock()
	if mine {
		a.n.deadlines.clear(a)
	}
}

// Recv returns the next record, valid until the next call. io.EOF: the stream is
// complete. ErrDetached: the sender left, go on reading for the next one. *SenderError:
// an error of the sender's application, go on reading. ErrDropped, *TransportError,
// ErrUnattached, ErrMalformed: the stream ended before its end. ErrClosed, or ctx's error.
func (a *Anchor) Recv(ctx context.Context) ([]byte, error) {
	e, err := a.RecvEvent(ctx)
	if err != nil {
		return nil, err
	}
	if err := e.Error(); err != nil {
		return nil, err
	}
	return e.Data, nil
}

// RecvEvent is Recv for an anchor of many senders: each of them may end, and the others
// go on. An error is the end of the anchor or ctx's.
func (a *Anchor) RecvEvent(ctx context.Context) (Event, error) {
	f := &a.frames
	for {
		frame, tag, ok := f.Next()
		if !ok {
			a.tellDrained(f)
			if a.ended != nil {
				return Event{}, a.ended
			}
			if err := a.inbox.Await(ctx, f); err != nil {
				return Event{}, a.over(err)
			}
			continue
		}
		e := a.event(f, frame, tag)
		if a.unread.records >= readsUntold {
			a.tellDrained(f)
		}
		return e, nil
	}
}

// Waiting reports whether Recv would return at once.
func (a *Anchor) Waiting() bool { return a.frames.N > 0 || !a.inbox.Empty() }

// readsUntold is how many records are read before the sender gets credit for them, where
// more wait to be read.
const readsUntold = 8

// event decodes the next frame and keeps account of it.
func (a *Anchor) event(f *mux.Frames, frame []byte, tag uint32) (e Event) {
	e.read(frame)
	if a.opts.MPSC {
		e.Sender, _ = a.inbox.Source(tag).(uint64)
	}
	if e.Ends() && !(a.opts.MPSC && e.Err != nil) { // of many senders one may err, and go on
		a.tellDrained(f)
		a.ends(&e, tag)
		return e
	}
	if a.unread.tag != tag {
		a.tellDrained(f)
		a.unread.tag = tag
	}
	a.unread.records++
	a.unread.bytes += len(frame)
	return e
}

// tellDrained lets the credit of what was read from f return.
func (a *Anchor) tellDrained(f *mux.Frames) {
	if d := &a.unread; d.records > 0 {
		a.inbox.Drained(f, d.tag, int(d.records), d.bytes)
		*d = drained{}
	}
}

// ends takes a sender's last event.
func (a *Anchor) ends(e *Event, tag uint32) {
	switch {
	case a.opts.MPSC:
		a.inbox.Release(tag)
		a.mu.Lock()
		delete(a.senders, e.Sender)
		alone := len(a.senders) == 0
		a.mu.Unlock()
		if alone {
			a.n.deadlines.set(a, a.opts.Unattached)
		}
		return
	case e.Kind == wire.Detached && e.Err == nil:
		a.inbox.Release(tag)
		a.mu.Lock()
		if a.state != gone {
			a.state, a.bind, a.local, a.conn = free, nil, nil, nil
			a.n.deadlines.set(a, a.opts.Unattached)
		}
		a.mu.Unlock()
		return
	}
	malformed := e.Err != nil
	a.mu.Lock()
	if a.state == late {
		e.Err = ErrUnattached
	}
	a.mu.Unlock()
	a.ended = e.Error()
	a.leave(malformed)
}

// over says why nothing more comes, where that is why the inbox gives nothing.
func (a *Anchor) over(err error) error {
	if errors.Is(err, mux.ErrClosed) {
		a.ended = ErrClosed
		return a.ended
	}
	return err
}

// Stop asks the present sender, or the next one, to finish. What it has sent and still
// sends comes all the same.
func (a *Anchor) Stop() {
	a.mu.Lock()
	a.stopped = true
	bind, local, cancel, conn := a.bind, a.local, a.cancel, a.conn
	a.mu.Unlock()
	switch {
	case local != nil && conn == nil:
		local.Stop()
	case cancel != (wire.Handle{}):
		a.n.fire(cancel.Hi, wire.HandlerStreamStop, wire.CancelRequest{SenderStreamID: cancel.Lo})
	case bind != nil:
		a.n.mux.Stop(bind)
	}
}

// Close ends the stream from the consumer's side: its senders are told, what was not
// read is forgotten. It may be called more than once.
func (a *Anchor) Close() error {
	a.leave(true)
	return nil
}

// leave takes the anchor out of the node. tell: its senders are to end too.
func (a *Anchor) leave(tell bool) {
	a.mu.Lock()
	if a.state == gone {
		a.mu.Unlock()
		return
	}
	a.state = gone
	last := source{bind: a.bind, cancel: a.cancel, local: a.local, conn: a.conn}
	senders := a.senders
	a.bind, a.local, a.conn, a.senders = nil, nil, nil, nil
	a.mu.Unlock()
	a.n.anchors.remove(a.id)
	a.n.deadlines.clear(a)
	if tell {
		a.n.cancelSource(&last)
		for _, s := range senders {
			a.n.cancelSource(s)
		}
	}
	a.inbox.Close()
}

// cancelSource ends what a sender sends to us.
func (n *Node) cancelSource(s *source) {
	switch {
	case s.local != nil:
		s.local.End(ErrCancelled)
	case s.conn != nil:
		s.conn.close()
	case s.bind != nil:
		n.mux.Cancel(s.bind)
	}
	if s.cancel != (wire.Handle{}) && (s.local == nil || s.conn != nil) {
		n.fire(s.cancel.Hi, wire.HandlerStreamCancel, wire.CancelRequest{SenderStreamID: s.cancel.Lo})
	}
}

// expired runs when nobody came in time: the consumer sees its stream end.
func (n *Node) expired(a *Anchor) {
	a.mu.Lock()
	bind := a.bind
	waits := a.state == free && len(a.senders) == 0 || a.state == prebound || a.state == attached && !a.claimed
	if !waits || bind != nil && !n.mux.Release(bind) {
		a.mu.Unlock()
		return // it came just now
	}
	if a.state != free {
		n.metrics.Reaped.Inc()
	}
	a.state = late
	a.mu.Unlock()
	n.anchors.remove(a.id)
	_ = n.mux.NewLocal(&a.inbox, nil, mux.Hooks{}).Finish(wire.FrameDropped) // closed meanwhile: nobody is to know
}

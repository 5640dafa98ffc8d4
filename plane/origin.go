// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"errors"

	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// source is one sender, as its anchor sees it.
type source struct {
	id     uint64      // of an MPSC anchor
	bind   *mux.Bind   // over the mux
	local  *mux.Local  // on this node, or with a connection of its own
	cancel wire.Handle // where to send word to it; zero: it came by ticket, or is on this node
}

// origin is where the records of an anchor come from. Most anchors at rest have none yet.
type origin struct {
	source                     // the one sender
	session uint64             // that lets it begin
	claimed bool               // it has begun
	senders map[uint64]*source // MPSC, by sender id, in place of the one
	lastID  uint64
}

// newBind lets a slot claim the anchor with the session. The lock is held.
func (a *Anchor) newBind(cancel wire.Handle) (session uint64) {
	session = secret()
	b := &mux.Bind{Anchor: a.id, Session: session, Inbox: &a.inbox}
	b.Claimed = func() { a.wasClaimed(b) }
	a.origin = &origin{source: source{bind: b, cancel: cancel}, session: session}
	a.n.mux.Bind(b)
	if a.stopped {
		a.n.mux.Stop(b)
	}
	return session
}

// wasClaimed runs when the stream has begun.
func (a *Anchor) wasClaimed(b *mux.Bind) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.origin == nil || a.origin.bind != b {
		return
	}
	a.origin.claimed = true
	if a.state == prebound {
		a.state = attached
	}
	a.n.deadlines.clear(a)
}

// sender is the one sender, as it is now; zero: there is none. The lock is held.
func (a *Anchor) sender() source {
	if a.origin == nil {
		return source{}
	}
	return a.origin.source
}

// sources are all senders, as they are now. The lock is held.
func (a *Anchor) sources() (all []source) {
	if a.origin == nil {
		return nil
	}
	for _, s := range a.origin.senders {
		all = append(all, *s)
	}
	return append(all, a.origin.source)
}

// released takes back what o offers to a slot, and reports whether nobody has claimed it.
func (n *Node) released(o *origin) bool {
	return o == nil || o.bind == nil || n.mux.Release(o.bind)
}

// crowded says that an MPSC anchor takes no more senders. The lock is held.
func (a *Anchor) crowded() bool {
	return a.opts.MaxSenders > 0 && a.origin != nil && len(a.origin.senders) >= a.opts.MaxSenders
}

// alone says that an MPSC anchor has no sender. The lock is held.
func (a *Anchor) alone() bool { return a.origin == nil || len(a.origin.senders) == 0 }

// addSource counts one more sender of an MPSC anchor. The lock is held.
func (a *Anchor) addSource(cancel wire.Handle) *source {
	if a.origin == nil {
		a.origin = &origin{senders: map[uint64]*source{}}
	}
	o := a.origin
	o.lastID++
	s := &source{id: o.lastID, cancel: cancel}
	o.senders[s.id] = s
	a.n.deadlines.clear(a)
	return s
}

// source finds a sender of an MPSC anchor, nil where there is none. The lock is held.
func (a *Anchor) source(id uint64) *source {
	if a.origin == nil {
		return nil
	}
	return a.origin.senders[id]
}

// forget takes out a sender of an MPSC anchor, if it is there. The lock is held.
func (a *Anchor) forget(id uint64) *source {
	s := a.source(id)
	if s != nil {
		delete(a.origin.senders, id)
	}
	return s
}

// stopSource asks a sender to finish.
func (n *Node) stopSource(s *source) {
	switch {
	case s.cancel != (wire.Handle{}):
		n.fire(s.cancel.Hi, wire.HandlerStreamStop, wire.CancelRequest{SenderStreamID: s.cancel.Lo})
	case s.local != nil:
		s.local.Stop()
	case s.bind != nil:
		n.mux.Stop(s.bind)
	}
}

// end ends what all senders send to us. Kept out of line, as it would make the frame of
// who calls it large.
//
//go:noinline
func (o *origin) end(n *Node, why error) {
	n.endSource(&o.source, why)
	for _, s := range o.senders {
		n.endSource(s, why)
	}
}

// endSource ends what a sender sends to us, with ErrCancelled, or ErrClosed where the node
// ends its connections anyhow.
func (n *Node) endSource(s *source, why error) {
	if s.local != nil {
		s.local.End(why)
	}
	if errors.Is(why, ErrClosed) {
		return
	}
	if s.bind != nil {
		n.mux.Cancel(s.bind)
	}
	if s.cancel != (wire.Handle{}) {
		n.fire(s.cancel.Hi, wire.HandlerStreamCancel, wire.CancelRequest{SenderStreamID: s.cancel.Lo})
	}
}

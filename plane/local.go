// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"fmt"

	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// A sender to an anchor of this node needs no wire and no heartbeat, and no peer may stop
// or cancel it: it stands in no table, and ends with its anchor.

// attachLocal begins a stream to an anchor of this node.
func (n *Node) attachLocal(h wire.Handle) (*Sender, error) {
	a := n.anchors.get(h.Lo)
	if a == nil {
		return nil, fmt.Errorf("%w: anchor %s not found", ErrRefused, h)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.state == gone || a.state == late:
		return nil, fmt.Errorf("%w: anchor %s not found", ErrRefused, h)
	case a.mpsc():
		if a.crowded() {
			return nil, fmt.Errorf("%w: reached max_senders limit %d", ErrRefused, a.opts.MaxSenders)
		}
		src, s := a.addSource(wire.Handle{}), &Sender{}
		src.local = a.join(s, src.id)
		if a.stopped {
			s.onStop()
		}
		return s, nil
	case a.state == prebound && n.released(a.origin):
	case a.state != free:
		return nil, fmt.Errorf("%w: anchor %s already attached", ErrRefused, h)
	}
	return a.beginLocal(), nil
}

// openLocal uses a ticket of this node.
func (n *Node) openLocal(h wire.Handle, session uint64) (*Sender, error) {
	a := n.anchors.get(h.Lo)
	if a == nil {
		return nil, fmt.Errorf("%w: anchor %s not found", ErrTicket, h)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != prebound || a.origin.session != session || !n.released(a.origin) {
		return nil, fmt.Errorf("%w: it was used, or is none of anchor %s", ErrTicket, h)
	}
	return a.beginLocal(), nil
}

// localStream are both ends' notes of a stream, which begin together.
type localStream struct {
	sender Sender
	origin origin
}

// beginLocal begins the stream of the one sender. The lock is held.
func (a *Anchor) beginLocal() *Sender {
	l := &localStream{}
	s, o := &l.sender, &l.origin
	o.local, o.claimed = a.join(s, nil), true
	a.origin, a.state = o, attached
	a.n.deadlines.clear(a)
	if a.stopped {
		s.onStop()
	}
	return s
}

// join makes s a sender to the anchor; from is what Inbox.Source says of it.
func (a *Anchor) join(s *Sender, from any) *mux.Local {
	s.n, s.to = a.n, a.n.Worker()
	l := a.n.mux.NewLocal(&a.inbox, from, (*told)(s))
	s.out = l
	return l
}

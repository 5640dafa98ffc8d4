// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"fmt"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// attachLocal joins a sender to an anchor of this process: no wire, no heartbeat.
func (n *Node) attachLocal(s *Sender, h wire.Handle) error {
	a := n.anchors.get(h.Lo)
	if a == nil {
		return fmt.Errorf("%w: anchor %s not found", ErrRefused, h)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.state == gone || a.state == late:
		return fmt.Errorf("%w: anchor %s not found", ErrRefused, h)
	case a.opts.MPSC:
		if a.crowded() {
			return fmt.Errorf("%w: reached max_senders limit %d", ErrRefused, a.opts.MaxSenders)
		}
		src := a.addSource(wire.Handle{})
		src.local = n.mux.NewLocal(&a.inbox, src.id, (*told)(s))
		s.carry(src.local, "")
		return nil
	case a.state == prebound && a.n.mux.Release(a.bind):
		a.bind = nil
	case a.state != free:
		return fmt.Errorf("%w: anchor %s already attached", ErrRefused, h)
	}
	a.beginLocal(s)
	return nil
}

// openLocal uses a ticket of this process.
func (n *Node) openLocal(s *Sender, h wire.Handle, session uint64) error {
	a := n.anchors.get(h.Lo)
	if a == nil {
		return fmt.Errorf("%w: anchor %s not found", ErrTicket, h)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state != prebound || a.session != session || !n.mux.Release(a.bind) {
		return fmt.Errorf("%w: it was used, or is none of anchor %s", ErrTicket, h)
	}
	a.bind = nil
	a.beginLocal(s)
	return nil
}

// beginLocal begins the stream. The lock is held.
func (a *Anchor) beginLocal(s *Sender) {
	a.local = a.n.mux.NewLocal(&a.inbox, nil, (*told)(s))
	s.carry(a.local, "")
	a.state, a.claimed = attached, true
	a.n.deadlines.clear(a)
	if a.stopped {
		s.onStop()
	}
}

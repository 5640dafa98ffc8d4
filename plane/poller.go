// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"

	"github.com/velo-agent/velo-agent/plane/mux"
)

// Poller serves any number of anchors with one goroutine: no goroutine, channel or timer
// belongs to a stream. Its function is told each event of each anchor, in the stream's
// order, and may block: then another goroutine serves the others meanwhile.
type Poller struct{ inboxes *mux.Poller }

// NewPoller returns a poller that tells handle of events; Run must run for it.
func NewPoller(handle func(*Anchor, Event)) *Poller {
	return &Poller{mux.NewPoller(handler(handle))}
}

// Add has the poller serve a, for good: nobody may call Recv on it any more.
func (p *Poller) Add(a *Anchor) { a.inbox.Serve(p.inboxes, !a.mpsc()) }

// Run serves until ctx ends, and then until no function runs any more. It runs once.
func (p *Poller) Run(ctx context.Context) error { return p.inboxes.Run(ctx) }

// handler is the function of a poller, as the mux calls it.
type handler func(*Anchor, Event)

// Frame implements mux.Handler.
func (h handler) Frame(b *mux.Inbox, tag uint32, frame []byte) {
	a := b.Owner.(*Anchor)
	var e Event
	if e.read(frame); e.Ends() {
		a.ends(&e, tag)
	}
	h(a, e)
}

// Look implements mux.Handler.
func (h handler) Look(b *mux.Inbox, f *mux.Frames) {
	a := b.Owner.(*Anchor)
	for b.Take(f); f.N > 0; {
		var e Event
		if tag, last := a.event(&e, f); last {
			a.ends(&e, tag)
		}
		h(a, e)
	}
	b.Tell(f)
}

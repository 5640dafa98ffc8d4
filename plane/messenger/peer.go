// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"context"
	"fmt"
	"sync"

	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// peer is another node and the way to it.
type peer struct {
	m      *Messenger
	worker wire.WorkerID

	mu       sync.Mutex
	told     origin
	info     wire.PeerInfo
	entries  map[string][]byte   // of info's address
	line     *line               // nil: not connected
	dialing  *attempt            // nil: nobody dials
	link     *Link               // nil: no source
	handlers map[string]struct{} // nil: not known yet
}

// line is what the messenger keeps of a connection.
type line struct {
	m    *Messenger
	peer *peer           // whom it was dialed for; nil: accepted
	conn *transport.Conn // nil until it is dialed

	// Of a dialed one.
	greeting greeting
	closed   bool // guarded by the peer's lock

	// Of its reading goroutine.
	from    wire.WorkerID // who speaks; 0: nobody yet
	claimed bool          // from is held in the claims

	handling, pulling lane
}

// attempt is a dial that several may wait for.
type attempt struct {
	done chan struct{} // closed with the others set
	line *line
	err  error
}

func (p *peer) known() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.told != nobody
}

// connect is the connection to the peer, dialed if there is none.
func (p *peer) connect(ctx context.Context) (*line, error) {
	p.mu.Lock()
	if l := p.line; l != nil {
		p.mu.Unlock()
		return l, nil
	}
	a := p.dial()
	p.mu.Unlock()
	select {
	case <-a.done:
		return a.line, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connecting to worker %d: %w", uint64(p.worker), ctx.Err())
	}
}

// dial begins to dial, unless somebody does already. The lock is held.
func (p *peer) dial() *attempt {
	if p.dialing == nil {
		a := &attempt{done: make(chan struct{})}
		if !p.m.spawn(func() { p.settle(a) }) {
			a.err = ErrClosed
			close(a.done)
			return a
		}
		p.dialing = a
	}
	return p.dialing
}

// settle dials, and puts the source of the link that waits on the connection.
func (p *peer) settle(a *attempt) {
	l, err := p.reach()
	p.mu.Lock()
	if err == nil && l.closed {
		err = fmt.Errorf("%w: it ended at once", ErrPeerLost)
	}
	a.err = err
	p.dialing = nil
	link := p.link
	if link != nil && !link.wanted {
		link = nil
	}
	if err == nil {
		a.line, p.line = l, l
		if link != nil {
			link.attach(l)
		}
	} else if link != nil {
		link.wanted = false
	}
	p.mu.Unlock()
	close(a.done)
	if err != nil {
		p.m.m.resolved("send", "error")
		if link != nil {
			link.down(err)
		}
	}
}

// reach dials the peer and says hello.
func (p *peer) reach() (*line, error) {
	m := p.m
	if !p.known() { // a link named it
		if _, err := m.find(m.ctx, p.worker); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	entries := p.entries
	p.mu.Unlock()
	var l *line
	err := m.eachPlace(entries, func(r *transport.Transport, place string) (err error) {
		l = newLine(m, p)
		c, err := r.Dial(m.ctx, place, l)
		if err != nil {
			return err
		}
		if may, _ := c.MaySpeakFor(p.worker); !may {
			c.Close()
			return fmt.Errorf("connecting to %s: %w: its certificate does not speak for worker %d", place, transport.ErrIdentity, uint64(p.worker))
		}
		p.greet(l, c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("connecting to worker %d: %w: %w", uint64(p.worker), ErrPeerLost, err)
	}
	return l, nil
}

func newLine(m *Messenger, p *peer) *line {
	l := &line{m: m, peer: p, greeting: greeting{done: make(chan struct{})}}
	if p != nil {
		l.from = p.worker // nobody else speaks there
	}
	return l
}

// lost follows the end of a connection that was dialed.
func (p *peer) lost(l *line, err error) {
	p.mu.Lock()
	l.closed = true
	if p.line == l {
		p.line = nil
	}
	link := p.link
	if link != nil && !link.leave(l) {
		link = nil
	}
	p.mu.Unlock()
	if link != nil {
		link.down(err)
	}
}

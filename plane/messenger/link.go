// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"fmt"
	"sync/atomic"

	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// Link is the way of a source to a peer. It shares the peer's one connection with
// messages: what is written is in the order in which the writer took it.
type Link struct {
	m      *Messenger
	to     wire.WorkerID
	source transport.Source
	tell   func(error)
	peer   atomic.Pointer[peer] // nil before the first kick
	line   atomic.Pointer[line] // the connection that the source is on

	failing, again atomic.Bool // down is being told; it was kicked meanwhile

	// Guarded by the peer's lock.
	wanted bool // kicked while there was no connection
	closed bool
}

// Link makes the way of a source to a peer, known or yet to be discovered. A peer has one
// link; a new one takes the place of the old, which should have been closed.
//
// down is told when the connection that the source was on is lost, or could not be made:
// no Take or Wrote runs then or afterwards, until the next Kick. It must not block.
func (m *Messenger) Link(to wire.WorkerID, s transport.Source, down func(error)) *Link {
	return &Link{m: m, to: to, source: s, tell: down}
}

// Kick says that the source may have something. Without a connection the peer is dialed.
// It never blocks; on a live connection it costs an atomic operation or two.
func (l *Link) Kick() {
	if on := l.line.Load(); on != nil {
		on.conn.Kick()
		return
	}
	if l.failing.Load() {
		l.again.Store(true)
		if l.failing.Load() {
			return
		}
	}
	p, err := l.m.peers.ensure(l.to)
	if err != nil {
		l.fail(err)
		return
	}
	l.peer.Store(p)
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.closed {
		return
	}
	p.link = l
	if p.line != nil {
		l.attach(p.line)
		return
	}
	l.wanted = true
	p.dial()
}

// fail tells down on a goroutine of its own: whoever kicks may hold what it needs. Kicks
// meanwhile wait for it, so that no Take runs beside it.
func (l *Link) fail(err error) {
	if !l.failing.CompareAndSwap(false, true) {
		return
	}
	l.m.spawn(func() {
		l.down(err)
		l.failing.Store(false)
		if l.again.Swap(false) {
			l.Kick()
		}
	})
}

// attach puts the source on a connection. The peer's lock is held.
func (l *Link) attach(to *line) {
	l.wanted = false
	to.conn.SetSource(l.source)
	l.line.Store(to)
	to.conn.Kick()
}

// leave takes note that a connection has ended; true if the source was on it. The peer's
// lock is held.
func (l *Link) leave(from *line) bool { return l.line.CompareAndSwap(from, nil) }

func (l *Link) down(err error) { l.tell(fmt.Errorf("the link to worker %d: %w", uint64(l.to), err)) }

// Close takes the source off its connection, which stays for messages. No Take runs
// afterwards, but Wrote may still come for a frame taken before. It waits for a Take that
// runs, so the caller must hold no lock that Take needs.
func (l *Link) Close() {
	p := l.peer.Load()
	if p == nil {
		return
	}
	p.mu.Lock()
	l.closed = true
	l.wanted = false
	if p.link == l {
		p.link = nil
	}
	on := l.line.Swap(nil)
	p.mu.Unlock()
	if on != nil {
		on.conn.SetSource(nil)
	}
}

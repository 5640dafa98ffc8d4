// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// Conn is one connection, dialed or accepted. All methods may be called at any time by
// any goroutine; once it is closed they do nothing, or return why it was.
type Conn struct {
	t       *Transport
	raw     net.Conn  // the socket
	nc      net.Conn  // the socket, or TLS over it
	from    *Listener // nil: dialed
	buffers Buffers
	names   []string // what the peer's certificate says; empty without TLS

	// Owner is the handler's own; of a dialed connection it is what Dial was given. Only the
	// Handler's methods may set it.
	Owner any

	queue chan queued
	wake  chan struct{}
	state atomic.Uint32 // of the writer: awake, asleep, kicked
	// kickedAt is when the first kick came that the writer has not answered yet, ns of
	// Transport.now; 0: none.
	kickedAt atomic.Int64

	source struct {
		sync.Mutex // held while the source is asked for a frame
		s          Source
	}

	// What the sweep looks at.
	got     atomic.Uint64 // frames read so far
	partial atomic.Bool   // a frame has begun to arrive
	writing atomic.Int64  // when the present write began, ns of Transport.now; 0: none
	seen    sighting      // guarded by the transport's lock
	counted counted       // by its listener; guarded by the transport's lock

	closing sync.Once
	cause   error
	done    chan struct{} // closed with cause set
	written chan struct{} // closed when the writer has ended

	out  net.Buffers // the writer's: what the next write holds
	left net.Buffers // the writer's: what of it is not written yet
}

// queued is a frame that waits to be written; with a nil frame, synced is closed once
// all before it has been.
type queued struct {
	frame  []byte
	since  int64
	synced chan struct{}
}

const (
	awake uint32 = iota
	asleep
	kicked
)

func newConn(t *Transport, raw net.Conn, from *Listener, b Buffers) *Conn {
	return &Conn{
		t: t, raw: raw, nc: raw, from: from, buffers: b,
		queue:   make(chan queued, queueFrames),
		wake:    make(chan struct{}, 1),
		done:    make(chan struct{}),
		written: make(chan struct{}),
	}
}

// Send queues a whole frame, which is the connection's afterwards. While 256 frames
// wait it blocks, until ctx ends or the connection closes. A nil error does not say that
// the frame arrives.
func (c *Conn) Send(ctx context.Context, frame []byte) error {
	q := queued{frame: frame, since: c.t.now()}
	select {
	case c.queue <- q:
	default:
		c.t.m.backpressure.Inc()
		select {
		case c.queue <- q:
		case <-c.done:
			return c.lost()
		case <-ctx.Done():
			return fmt.Errorf("waiting to send to %s: %w", c.nc.RemoteAddr(), ctx.Err())
		}
	}
	c.count(frame)
	c.Kick()
	return c.open()
}

// TrySend is Send that does not wait: false if the queue is full or the connection closed.
func (c *Conn) TrySend(frame []byte) bool {
	select {
	case c.queue <- queued{frame: frame, since: c.t.now()}:
		c.count(frame)
		c.Kick()
		return c.open() == nil
	default:
		return false
	}
}

func (c *Conn) count(frame []byte) {
	var t tally
	t.addAll(frame)
	t.count(&c.t.m.frames[outbound], &c.t.m.bytes[outbound])
}

// Sync waits until every frame that was queued before it has been written to the socket.
func (c *Conn) Sync(ctx context.Context) error {
	synced := make(chan struct{})
	select {
	case c.queue <- queued{synced: synced}:
		c.Kick()
	case <-c.done:
		return c.lost()
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-synced:
		return nil
	case <-c.done:
		return c.lost()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Finish writes what is queued and says that no more comes; the peer sees the end after the
// last frame, and Done tells when it has closed its side too.
func (c *Conn) Finish(ctx context.Context) error {
	if err := c.Sync(ctx); err != nil {
		return err
	}
	return c.raw.(interface{ CloseWrite() error }).CloseWrite()
}

// SetSource puts a source on the connection, or with nil takes it off: then no Take runs
// or will run, but Wrote may still come for a frame taken before. It waits for a Take that
// runs, so the caller must hold no lock that Take needs.
func (c *Conn) SetSource(s Source) {
	c.source.Lock()
	c.source.s = s
	c.source.Unlock()
}

// Kick tells the writer that the source may have something. It never blocks; while the
// writer is awake it costs an atomic operation.
func (c *Conn) Kick() {
	if c.state.Load() == kicked {
		return
	}
	c.kickedAt.CompareAndSwap(0, c.t.now())
	if c.state.Swap(kicked) == asleep {
		c.wake <- struct{}{} // has room: only who finds the writer asleep comes here
	}
}

// Close closes the connection at once; frames that wait are dropped. The Handler is told
// ErrClosed, soon.
func (c *Conn) Close() error {
	c.fail(ErrClosed)
	return nil
}

// Buffers are the socket buffers that the kernel granted.
func (c *Conn) Buffers() Buffers { return c.buffers }

// Dialed says which side made the connection.
func (c *Conn) Dialed() bool { return c.from == nil }

// Remote is the peer's end; of an accepted Unix socket it has no name.
func (c *Conn) Remote() net.Addr { return c.nc.RemoteAddr() }

// Host is the peer's IP address; invalid on a Unix socket.
func (c *Conn) Host() netip.Addr {
	if a, ok := c.raw.RemoteAddr().(*net.TCPAddr); ok {
		return a.AddrPort().Addr().Unmap()
	}
	return netip.Addr{}
}

// Done is closed when the connection is.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Transport is what made the connection.
func (c *Conn) Transport() *Transport { return c.t }

// MaySpeakFor says whether the peer may use the id. proved: its certificate is bound to
// just such ids; without TLS, or with a certificate that any instance may use, it is not.
func (c *Conn) MaySpeakFor(w wire.WorkerID) (allowed, proved bool) {
	if c.t.o.TLS == nil || c.t.network == "unix" {
		return true, false
	}
	return c.t.o.TLS.allows(c.names, w)
}

// fail closes the connection for the first of the causes that it is given.
func (c *Conn) fail(cause error) {
	c.closing.Do(func() {
		c.cause = cause
		close(c.done)
		c.raw.Close() // not TLS's: that would wait to say goodbye
		c.Kick()      // the writer may sleep
	})
}

func (c *Conn) open() error {
	select {
	case <-c.done:
		return c.lost()
	default:
		return nil
	}
}

func (c *Conn) lost() error { return fmt.Errorf("sending to %s: %w", c.nc.RemoteAddr(), c.cause) }

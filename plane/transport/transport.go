// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"
)

// Transport dials and listens on one network, and holds its connections.
type Transport struct {
	network string // "tcp" or "unix"
	handler Handler
	o       Options
	m       *bound
	start   time.Time

	mu        sync.Mutex
	conns     map[*Conn]struct{}
	listeners []*Listener
	sweeper   *time.Timer // runs while there are connections
	closed    bool
	running   sync.WaitGroup
}

// New makes the transport of a network, "tcp" or "unix".
func New(network string, h Handler, o Options) (*Transport, error) {
	if network != "tcp" && network != "unix" {
		return nil, fmt.Errorf("making a transport: unknown network %q: want tcp or unix", network)
	}
	t := &Transport{
		network: network, handler: h, o: o.withDefaults(),
		start: time.Now().Add(-1), conns: map[*Conn]struct{}{},
	}
	t.m = t.o.Metrics.bind(t.Key())
	t.sweeper = time.AfterFunc(time.Hour, t.sweep)
	t.sweeper.Stop()
	return t, nil
}

// Key is velo's name of the transport, in addresses and in metrics.
func (t *Transport) Key() string {
	if t.network == "unix" {
		return "uds"
	}
	return t.network
}

// now is the time since the transport was made, in ns; never 0.
func (t *Transport) now() int64 { return int64(time.Since(t.start)) }

// Reject counts a frame that is refused or dropped.
func (t *Transport) Reject(r Rejection) { t.m.rejections[r].Inc() }

// SetPeers sets the gauge of the peers that can be reached this way.
func (t *Transport) SetPeers(n int) { t.m.peers.Set(float64(n)) }

// Dial connects to an IP address and port, or to the path of a Unix socket, within
// Options.DialTimeout. The connection's Owner is set before its first frame is read.
func (t *Transport) Dial(ctx context.Context, address string, owner any) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, t.o.DialTimeout)
	defer cancel()
	raw, err := t.dialer().DialContext(ctx, t.network, address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	c, err := t.dialed(ctx, raw)
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	c.Owner = owner
	if err := t.begin(c); err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", address, err)
	}
	return c, nil
}

func (t *Transport) dialed(ctx context.Context, raw net.Conn) (*Conn, error) {
	b, err := t.tune(raw)
	if err != nil {
		return nil, err
	}
	c := newConn(t, raw, nil, b)
	if t.encrypted() {
		over := tls.Client(raw, t.o.TLS.client)
		if err := over.HandshakeContext(ctx); err != nil {
			return nil, fmt.Errorf("agreeing on TLS: %w", err)
		}
		c.nc, c.names = over, namesOf(over)
	}
	return c, nil
}

func (t *Transport) dialer() *net.Dialer {
	return &net.Dialer{Control: t.askBuffers, KeepAliveConfig: keepAlive}
}

func (t *Transport) encrypted() bool { return t.o.TLS != nil && t.network == "tcp" }

// Ping connects and closes at once: the health check of velo, without a byte.
func (t *Transport) Ping(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, t.o.DialTimeout)
	defer cancel()
	raw, err := new(net.Dialer).DialContext(ctx, t.network, address)
	if err != nil {
		return fmt.Errorf("connecting to %s to see whether it lives: %w", address, err)
	}
	return raw.Close()
}

// begin starts the goroutines of a connection.
func (t *Transport) begin(c *Conn) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		c.raw.Close()
		return ErrClosed
	}
	if len(t.conns) == 0 {
		t.sweeper.Reset(t.o.Patience / 4)
	}
	c.seen = sighting{moved: time.Now(), settled: time.Now()}
	if c.Dialed() {
		t.m.connections.Inc()
	} else {
		c.from.admit(c)
	}
	t.conns[c] = struct{}{}
	t.running.Go(func() { t.serve(c) })
	return nil
}

// serve is a connection's reading goroutine. It tells the handler of the end when
// nothing runs for the connection any more.
func (t *Transport) serve(c *Conn) {
	err := c.accept()
	if err == nil {
		go c.write()
		err = c.read(t.handler)
	} else {
		close(c.written)
	}
	c.fail(err)
	<-c.written
	t.forget(c)
	t.handler.Closed(c, c.cause)
}

// accept agrees on TLS where this side was dialed; whoever dials has done it before.
func (c *Conn) accept() error {
	if c.Dialed() || !c.t.encrypted() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.t.o.DialTimeout)
	defer cancel()
	over := tls.Server(c.raw, c.t.o.TLS.server)
	if err := over.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("agreeing on TLS with %s: %w", c.raw.RemoteAddr(), err)
	}
	c.nc, c.names = over, namesOf(over)
	return nil
}

func (t *Transport) forget(c *Conn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.conns, c)
	if c.Dialed() {
		t.m.connections.Dec()
	} else {
		c.from.uncount(c)
	}
}

// Close ends all connections and listeners, and returns when no goroutine of them is
// left. No Handler may call it.
func (t *Transport) Close() error {
	t.mu.Lock()
	t.closed = true
	t.sweeper.Stop()
	for _, l := range t.listeners {
		l.nl.Close()
	}
	for c := range t.conns {
		c.fail(ErrClosed)
	}
	t.mu.Unlock()
	t.running.Wait()
	return nil
}

// Network is what the transport was made for, "tcp" or "unix".
func (t *Transport) Network() string { return t.network }

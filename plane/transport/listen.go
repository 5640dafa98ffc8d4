// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/bits"
	"net"
	"net/netip"
	"os"
	"time"
)

// Listener accepts connections until its transport is closed.
type Listener struct {
	t  *Transport
	nl net.Listener

	// Guarded by the transport's lock.
	silent, all int
	hosts       map[netip.Addr]int // how many of all, by where they come from
}

// counted says which of its listener's numbers a connection is part of.
type counted uint8

const (
	uncounted counted = iota
	silent            // no frame yet
	speaking
)

// Listen listens on an address and port, or at the path of a Unix socket, where a
// socket that nobody serves any more is replaced.
func (t *Transport) Listen(address string) (*Listener, error) {
	nl, err := t.listen(address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	l := &Listener{t: t, nl: nl, hosts: map[netip.Addr]int{}}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		nl.Close()
		return nil, ErrClosed
	}
	t.listeners = append(t.listeners, l)
	t.running.Go(l.accept)
	return l, nil
}

func (t *Transport) listen(address string) (net.Listener, error) {
	if t.network == "unix" {
		if err := removeStale(address); err != nil {
			return nil, err
		}
	} else if err := t.exposed(address); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: t.askBuffers, KeepAliveConfig: keepAlive}
	return config.Listen(context.Background(), t.network, address)
}

// exposed refuses a listener that other hosts can reach and that asks nobody who they are.
func (t *Transport) exposed(address string) error {
	if t.encrypted() || t.o.Insecure {
		return nil
	}
	a, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return err
	}
	if a.IP.IsLoopback() {
		return nil
	}
	return fmt.Errorf("%w: configure TLS, listen on a loopback address or a Unix socket, or allow it with insecure", ErrInsecure)
}

// removeStale removes a socket that was left behind, and nothing else.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%w: there is a file that is no socket; choose another path", ErrBusy)
	}
	if c, err := net.DialTimeout("unix", path, 100*time.Millisecond); err == nil {
		c.Close()
		return fmt.Errorf("%w: another process answers there; choose another path", ErrBusy)
	}
	return os.Remove(path)
}

// Addr is what the listener is bound to.
func (l *Listener) Addr() net.Addr { return l.nl.Addr() }

// AddrPort is the bound address of a TCP listener; invalid on a Unix socket.
func (l *Listener) AddrPort() netip.AddrPort {
	if a, ok := l.nl.Addr().(*net.TCPAddr); ok {
		return a.AddrPort()
	}
	return netip.AddrPort{}
}

func (l *Listener) accept() {
	pause := time.Duration(0)
	for {
		raw, err := l.nl.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of descriptors, most likely: closing helps, spinning does not.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			l.t.o.Log.Warn("accepting a connection failed; trying again", "address", l.nl.Addr().String(), "err", err, "pause", pause)
			time.Sleep(pause)
			continue
		}
		pause = 0
		b, err := l.t.tune(raw)
		if err != nil {
			raw.Close() // it is gone already: a health check
			continue
		}
		if l.t.begin(newConn(l.t, raw, l, b)) != nil {
			return
		}
	}
}

// admit counts a connection in, and has another one go where there are too many.
func (l *Listener) admit(c *Conn) {
	if l.silent >= l.t.o.HalfOpen {
		l.evict(func(c *Conn) bool { return c.counted == silent })
	}
	if l.all >= l.t.o.Accepted {
		// Whoever crowds the others out makes room.
		most := netip.Addr{}
		for host, n := range l.hosts {
			if n > l.hosts[most] {
				most = host
			}
		}
		l.evict(func(c *Conn) bool { return c.counted != uncounted && c.Host() == most })
	}
	c.counted = silent
	l.silent++
	l.all++
	l.hosts[c.Host()]++
}

// evict closes the connection that has brought least (within a factor of two), and of
// such ones the one that has been silent for longest: a peer that means it speaks at once.
func (l *Listener) evict(among func(*Conn) bool) {
	var worst *Conn
	now := time.Now()
	for c := range l.t.conns {
		if c.from != l || !among(c) {
			continue
		}
		c.look(now)
		if worst == nil || cmp.Or(cmp.Compare(bits.Len64(c.seen.frames), bits.Len64(worst.seen.frames)),
			c.seen.moved.Compare(worst.seen.moved)) < 0 {
			worst = c
		}
	}
	if worst == nil {
		return
	}
	l.uncount(worst)
	l.t.Reject(RouteFailed)
	worst.fail(fmt.Errorf("reading from %s: %w at %s: it brought least", worst.raw.RemoteAddr(), ErrCrowded, l.nl.Addr()))
}

func (l *Listener) uncount(c *Conn) {
	if c.counted == uncounted {
		return
	}
	if c.counted == silent {
		l.silent--
	}
	c.counted = uncounted
	l.all--
	if l.hosts[c.Host()]--; l.hosts[c.Host()] == 0 {
		delete(l.hosts, c.Host())
	}
}

// spoke says that the first frame came.
func (l *Listener) spoke(c *Conn) {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	if c.counted == silent {
		c.counted = speaking
		l.silent--
	}
}

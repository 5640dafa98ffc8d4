// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net"
	"sync"

	"golang.org/x/sys/unix"
)

// sendBuffer is the socket send buffer of the server's connections, in bytes,
// small so that a reader that stalls is felt soon.
const sendBuffer = 32 << 10

// listener accepts late while it is the turn of slowAccept.
type listener struct {
	*net.TCPListener
	server *server
}

// Accept waits until a connection is in the queue, lets it wait as long as the
// schedule says, and takes it.
func (l *listener) Accept() (net.Conn, error) {
	if err := l.waiting(); err != nil {
		return nil, err
	}
	l.server.disturb(slowAccept, l.server.accept)
	c, err := l.AcceptTCP()
	if err != nil {
		return nil, err
	}
	if err := c.SetWriteBuffer(sendBuffer); err != nil {
		c.Close()
		return nil, fmt.Errorf("setting the send buffer: %w", err)
	}
	return &conn{TCPConn: c, server: l.server}, nil
}

// waiting returns when the accept queue is not empty. It asks in turns, so that
// closing the listener ends it.
func (l *listener) waiting() error {
	raw, err := l.SyscallConn()
	if err != nil {
		return fmt.Errorf("reaching the listener: %w", err)
	}
	for ready := 0; ready == 0; {
		var pollErr error
		err := raw.Control(func(fd uintptr) {
			ready, pollErr = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		})
		if err != nil {
			return err // net.ErrClosed when the server stops
		}
		if pollErr != nil && pollErr != unix.EINTR {
			return fmt.Errorf("waiting for a connection: %w", pollErr)
		}
		ready = max(ready, 0)
	}
	return nil
}

// conn reads its first bytes late while it is the turn of lateRead.
type conn struct {
	*net.TCPConn
	server *server
	first  sync.Once
}

// Read reads from the connection.
func (c *conn) Read(b []byte) (int, error) {
	c.first.Do(func() { c.server.disturb(lateRead, c.server.read) })
	return c.TCPConn.Read(b)
}

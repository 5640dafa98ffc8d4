// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 60 * time.Second, Interval: 10 * time.Second}

// Buffers are a connection's socket buffers in bytes, as data may use them: half of
// what the kernel reports, which doubles what it was asked for to have room for its own
// records. Clamped: one of them is smaller than what was asked for (net.core.wmem_max, rmem_max).
type Buffers struct {
	Asked, Send, Receive int
	Clamped              bool
}

// Ceiling is the most that the buffers let through to a peer that is this far away, in
// bytes a second. 0: no bound, the round trip takes no time.
func (b Buffers) Ceiling(rtt time.Duration) float64 {
	if rtt <= 0 {
		return 0
	}
	return float64(min(b.Send, b.Receive)) / rtt.Seconds()
}

// askBuffers is the control function of dialers and listeners: buffers count in the
// handshake, so they must be asked for before it.
func (t *Transport) askBuffers(_, _ string, raw syscall.RawConn) error {
	return control(raw, func(fd int) error { return setBuffers(fd, t.o.Buffer) })
}

func setBuffers(fd, size int) error {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, size); err != nil {
		return fmt.Errorf("asking for a send buffer of %d bytes: %w", size, err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, size); err != nil {
		return fmt.Errorf("asking for a receive buffer of %d bytes: %w", size, err)
	}
	return nil
}

// tune sets what a connected socket needs and reads back what it was granted.
func (t *Transport) tune(conn net.Conn) (b Buffers, err error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return b, fmt.Errorf("reaching the socket: %w", err)
	}
	b.Asked = t.o.Buffer
	err = control(raw, func(fd int) error {
		if t.network == "unix" { // accepted Unix sockets do not inherit the listener's
			if err := setBuffers(fd, t.o.Buffer); err != nil {
				return err
			}
		} else if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(t.o.Patience.Milliseconds())); err != nil {
			return fmt.Errorf("setting the time after which unanswered data ends a connection: %w", err)
		}
		if b.Send, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF); err != nil {
			return fmt.Errorf("reading the send buffer's size: %w", err)
		}
		if b.Receive, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil {
			return fmt.Errorf("reading the receive buffer's size: %w", err)
		}
		return nil
	})
	b.Send /= 2
	b.Receive /= 2
	b.Clamped = min(b.Send, b.Receive) < b.Asked
	return b, err
}

func control(raw syscall.RawConn, f func(fd int) error) error {
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = f(int(fd)) }); err != nil {
		return err
	}
	return inner
}

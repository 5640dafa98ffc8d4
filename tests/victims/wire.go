// SPDX-License-Identifier: Apache-2.0

package victims

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A socket is a blocking TCP socket, for a thread of its own.
type socket struct {
	fd, port int
}

func dialSocket(cfg ClientConfig) (wire, error) {
	addr, err := netip.ParseAddrPort(cfg.Addr)
	if err != nil {
		return nil, err
	}
	family, to := unix.AF_INET, unix.Sockaddr(&unix.SockaddrInet4{Port: int(addr.Port())})
	if addr.Addr().Is6() {
		family, to = unix.AF_INET6, &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
	} else {
		to.(*unix.SockaddrInet4).Addr = addr.Addr().As4()
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	s := &socket{fd: fd}
	if err := s.connect(cfg, to); err != nil {
		unix.Close(fd)
		return nil, err
	}
	return s, nil
}

func (s *socket) connect(cfg ClientConfig, to unix.Sockaddr) error {
	timeout := unix.NsecToTimeval(cfg.Timeout.Nanoseconds())
	for _, option := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		if err := unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, option, &timeout); err != nil {
			return err
		}
	}
	if err := prepareClient(s.fd, cfg.RcvBuf); err != nil {
		return err
	}
	err := unix.Connect(s.fd, to)
	for err == unix.EINTR || err == unix.EALREADY { // it goes on in the background
		err = unix.Connect(s.fd, to)
	}
	if err != nil && err != unix.EISCONN {
		return err
	}
	local, err := unix.Getsockname(s.fd)
	switch a := local.(type) {
	case *unix.SockaddrInet4:
		s.port = a.Port
	case *unix.SockaddrInet6:
		s.port = a.Port
	}
	return err
}

func prepareClient(fd, rcvbuf int) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return err
	}
	if rcvbuf > 0 {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, rcvbuf)
	}
	return nil
}

func (s *socket) localPort() int { return s.port }

func (s *socket) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(s.fd, b)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			return 0, os.ErrDeadlineExceeded
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.ErrUnexpectedEOF
		default:
			return n, nil
		}
	}
}

func (s *socket) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		n, err := unix.SendmsgN(s.fd, b[done:], nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

func (s *socket) Close() error { return unix.Close(s.fd) }

// A netConn is the same over Go's network poller.
type netConn struct {
	*net.TCPConn
	timeout time.Duration
}

func dialConn(cfg ClientConfig) (wire, error) {
	d := net.Dialer{Timeout: cfg.Timeout, ControlContext: func(_ context.Context, _, _ string, c syscall.RawConn) error {
		var err error
		if e := c.Control(func(fd uintptr) { err = prepareClient(int(fd), cfg.RcvBuf) }); e != nil {
			return e
		}
		return err
	}}
	d.SetMultipathTCP(false)
	c, err := d.Dial("tcp", cfg.Addr)
	if err != nil {
		return nil, err
	}
	return &netConn{c.(*net.TCPConn), cfg.Timeout}, nil
}

func (c *netConn) localPort() int { return c.LocalAddr().(*net.TCPAddr).Port }

func (c *netConn) Read(b []byte) (int, error) {
	if err := c.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	n, err := c.TCPConn.Read(b)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

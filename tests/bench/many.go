// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// RaiseFiles lets this process and its children hold n descriptors.
func RaiseFiles(n uint64) error {
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &have); err != nil {
		return fmt.Errorf("reading the limit of open files: %w", err)
	}
	if have.Cur >= n {
		return nil
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: n, Max: max(n, have.Max)}); err != nil {
		return fmt.Errorf("raising the limit of open files to %d (needs root): %w", n, err)
	}
	return nil
}

// Holder is a server that holds many connections and echoes single bytes.
type Holder struct{ held atomic.Int64 }

// FreePort returns a port below those that the kernel gives to clients: the end of
// a client that happened to have the server's port would be taken for a server's.
func FreePort() (int, error) {
	for port := 21_000; port < 22_000; port++ {
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no port from 21000 to 21999 is free")
}

// Listen starts it on a port, which it may share with others, and answers with it.
func (h *Holder) Listen(at int, port *int) error {
	lc := net.ListenConfig{Control: option(unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)}
	lc.SetMultipathTCP(false) // its sockets would be two
	l, err := lc.Listen(context.Background(), "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(at)))
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	*port = l.Addr().(*net.TCPAddr).Port
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.held.Add(1)
			go func() {
				io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 1))
				c.Close()
				h.held.Add(-1)
			}()
		}
	}()
	return nil
}

// option sets a socket option before the socket is bound.
func option(level, name, value int) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var err error
		e := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), level, name, value) })
		return errors.Join(e, err)
	}
}

// Held answers with the number of open connections.
func (h *Holder) Held(_ Nothing, n *int64) error {
	*n = h.held.Load()
	return nil
}

// Dialer holds the other ends.
type Dialer struct{ conns []net.Conn }

// DialPlan says how many connections to open, from which address.
type DialPlan struct {
	Source, Addr string
	Conns        int
}

// Dial opens connections, a few at a time.
func (d *Dialer) Dial(p DialPlan, _ *Nothing) error {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(p.Source)}, Control: option(unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)}
	dialer.SetMultipathTCP(false)
	const workers = 2
	var mu sync.Mutex
	var all sync.WaitGroup
	var failed error
	for w := range workers {
		all.Go(func() {
			for i := w; i < p.Conns; i += workers {
				c, err := dialer.Dial("tcp4", p.Addr)
				if err == nil {
					err = c.(*net.TCPConn).SetLinger(0) // leave no TIME_WAIT to the next run
				}
				mu.Lock()
				if err != nil {
					failed = err
					mu.Unlock()
					return
				}
				d.conns = append(d.conns, c)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return failed
}

// Talk makes one exchange of a byte on every connection.
func (d *Dialer) Talk(_ Nothing, n *int) error {
	b := []byte{'x'}
	for _, c := range d.conns {
		if _, err := c.Write(b); err != nil {
			return fmt.Errorf("sending a byte: %w", err)
		}
		if _, err := io.ReadFull(c, b); err != nil {
			return fmt.Errorf("reading it back: %w", err)
		}
		*n++
	}
	return nil
}

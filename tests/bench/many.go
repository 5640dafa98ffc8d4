// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"

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

// Listen starts it and answers with its port.
func (h *Holder) Listen(_ Nothing, port *int) error {
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // its sockets would be two
	l, err := lc.Listen(context.Background(), "tcp4", "127.0.0.1:0")
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
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(p.Source)}}
	dialer.SetMultipathTCP(false)
	const workers = 8
	var mu sync.Mutex
	var all sync.WaitGroup
	var failed error
	for w := range workers {
		all.Go(func() {
			for i := w; i < p.Conns; i += workers {
				c, err := dialer.Dial("tcp4", p.Addr)
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

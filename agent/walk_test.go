// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestWalkUnderChurn: each socket is found once, while others come and go beside it.
func TestWalkUnderChurn(t *testing.T) {
	const listeners = 24
	var ports []uint16
	var addrs []string
	for range listeners {
		l := listen(t)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() { _, _ = c.Read(make([]byte, 1)); c.Close() }()
			}
		}()
		ports = append(ports, l.port)
		addrs = append(addrs, l.Addr().String())
	}
	s := open(t, Options{Watch: Watch{Ports: ports}})
	for _, a := range addrs {
		c, err := net.Dial("tcp4", a)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	var done atomic.Bool
	var churn sync.WaitGroup
	defer churn.Wait()
	defer done.Store(true)
	for i := range 4 {
		churn.Go(func() {
			for n := i; !done.Load(); n++ {
				if c, err := net.Dial("tcp4", addrs[n%listeners]); err == nil {
					c.Close()
				}
			}
		})
	}
	looks, twice, missed := 0, 0, 0
	for begun := time.Now(); time.Since(begun) < 2*time.Second; {
		s.seen.mu.Lock()
		walk := s.walk()
		for _, tg := range s.targets.list {
			looks++
			switch open := walk[tg.index]; {
			case open.Listeners > 1:
				twice++
			case open.Listeners < 1 || open.Established < 1:
				missed++
			}
		}
		s.seen.mu.Unlock()
	}
	// The kernel's own list lets a walk miss a socket, if rarely: one in a million was seen.
	if looks == 0 || twice > 0 || missed*1000 > looks {
		t.Errorf("of %d looks at a port %d found its listener twice and %d missed a socket", looks, twice, missed)
	}
}

// TestOverflowsStay: what a listener refused before the agent came does not count, and
// what it refused since counts on when it closes.
func TestOverflowsStay(t *testing.T) {
	first := narrow(t, 0)
	port := uint16(first.Addr().(*net.TCPAddr).Port)
	refuse := func() { // fills what room there is, and more
		for range 3 {
			if c, err := net.DialTimeout("tcp4", first.Addr().String(), 50*time.Millisecond); err == nil {
				t.Cleanup(func() { c.Close() })
			}
		}
	}
	refuse()
	s := open(t, Options{Watch: Watch{Ports: []uint16{port}}})
	overflows := func() uint64 {
		t.Helper()
		n := s.report(t).Ports[0].Accept.Overflows
		if n == nil {
			t.Fatal("overflows are not told")
		}
		return *n
	}
	if n := overflows(); n != 0 {
		t.Errorf("%d overflows of before the agent came", n)
	}
	refuse()
	before := overflows()
	if before == 0 {
		t.Fatal("the full queue refused nothing")
	}
	narrow(t, port) // a second worker on the same port, which keeps it watched
	if n := overflows(); n != before {
		t.Errorf("%d overflows with a second listener, want %d", n, before)
	}
	first.Close()
	if n := overflows(); n != before {
		t.Errorf("%d overflows after the first listener closed, want %d", n, before)
	}
}

// narrow listens with room for a single connection, on port or on any.
func narrow(t *testing.T, port uint16) net.Listener {
	t.Helper()
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		return errors.Join(cerr, err)
	}}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(t.Context(), "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if cerr := raw.Control(func(fd uintptr) { err = unix.Listen(int(fd), 0) }); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	return l
}

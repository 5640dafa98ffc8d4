// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/velo-agent/velo-agent/attribution"
	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/bpf/sockqueue"
)

// sizes are the bytes of each write of the exchanges. The last write of each is
// long enough to be a record, so that a trace tells of it.
var sizes = []struct{ request, response []int }{
	{[]int{1, 7}, []int{7, 1, 9}},
	{[]int{1447, 13}, []int{4099, 3, 11}},
	{[]int{65537}, []int{100003, 1449, 9}},
	{[]int{11, 20011}, []int{3, 65539, 7}},
}

// end is one socket of a connection, with the bytes that went through it.
type end struct {
	*net.TCPConn
	cookie uint64
	name   string
	in     uint64
	out    uint64
	// lastIn is what in stood at when its last trace left: a server's leaves with
	// the last response write, a client's last "answer" is the last request.
	lastIn  uint64
	opener  bool // its SYN counts 1 outbound
	watched bool // of the clients' ends only those older than the agent are
}

type pair struct{ client, server *end }

// flows are the connections whose bytes are counted.
type flows struct {
	listeners []net.Listener
	ports     []uint16
	pairs     []*pair
}

func (f *flows) Close() error {
	var errs []error
	for _, p := range f.pairs {
		errs = append(errs, p.client.Close(), p.server.Close())
	}
	for _, l := range f.listeners {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// listenAll listens with plain TCP and as Go does (MPTCP where the kernel has it), over
// IPv4 and IPv6.
func (f *flows) listenAll(ctx context.Context) error {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		for _, plain := range []bool{true, false} {
			var lc net.ListenConfig
			if plain {
				lc.SetMultipathTCP(false)
			}
			l, err := lc.Listen(ctx, "tcp", addr)
			if err != nil {
				return fmt.Errorf("listening: %w", err)
			}
			f.listeners = append(f.listeners, l)
			f.ports = append(f.ports, uint16(l.Addr().(*net.TCPAddr).Port))
		}
	}
	return nil
}

// connect opens one connection to each listener.
func (f *flows) connect(ctx context.Context, age string) error {
	for i, l := range f.listeners {
		name := fmt.Sprintf("%s %s %s", age, []string{"TCP", "MPTCP"}[i%2], l.Addr().(*net.TCPAddr).IP)
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Addr().String())
		if err != nil {
			return fmt.Errorf("connecting: %w", err)
		}
		s, err := l.Accept()
		if err != nil {
			return errors.Join(fmt.Errorf("accepting: %w", err), c.Close())
		}
		p := &pair{
			client: &end{TCPConn: c.(*net.TCPConn), name: name + " client", opener: true, watched: age == "old"},
			server: &end{TCPConn: s.(*net.TCPConn), name: name + " server", watched: true},
		}
		f.pairs = append(f.pairs, p)
		for _, e := range []*end{p.client, p.server} {
			if e.cookie, err = cookie(e.TCPConn); err != nil {
				return fmt.Errorf("reading a socket's cookie: %w", err)
			}
		}
	}
	return nil
}

func cookie(c *net.TCPConn) (uint64, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var v uint64
	cerr := raw.Control(func(fd uintptr) { v, err = unix.GetsockoptUint64(int(fd), unix.SOL_SOCKET, unix.SO_COOKIE) })
	return v, errors.Join(cerr, err)
}

// exchange sends one request and its response on every connection. half closes the
// client's sending side after the request, so that a FIN counts in the server's
// inbound positions; it must be the last.
func (f *flows) exchange(n int, half bool) error {
	x := sizes[n%len(sizes)]
	for _, p := range f.pairs {
		p.client.lastIn = p.client.in
		if err := send(p.client, p.server, x.request); err != nil {
			return fmt.Errorf("%s: the request: %w", p.client.name, err)
		}
		if half {
			if err := p.client.CloseWrite(); err != nil {
				return err
			}
			if n, err := p.server.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				return fmt.Errorf("%s: reading the end: %d bytes, %w", p.server.name, n, err)
			}
		}
		p.server.lastIn = p.server.in
		if err := send(p.server, p.client, x.response); err != nil {
			return fmt.Errorf("%s: the response: %w", p.server.name, err)
		}
	}
	return nil
}

// send writes each size in one write, the reader reading on the way.
func send(from, to *end, writes []int) error {
	total := 0
	for _, n := range writes {
		total += n
	}
	failed := make(chan error, 1)
	go func() {
		for _, n := range writes {
			if _, err := from.Write(make([]byte, n)); err != nil {
				failed <- err
				return
			}
		}
		failed <- nil
	}()
	_, err := io.ReadFull(to, make([]byte, total))
	if err != nil {
		from.Close() // or its writes may wait for ever
	}
	from.out += uint64(total)
	to.in += uint64(total)
	return errors.Join(err, <-failed)
}

// comparison counts positions that equal the bytes.
type comparison struct {
	equal, all int
	wrong      []string
}

func (c *comparison) want(name string, got, want uint64) {
	c.all++
	if got == want {
		c.equal++
		return
	}
	c.wrong = append(c.wrong, fmt.Sprintf("%s is %d, not %d", name, got, want))
}

func (c *comparison) add(out *lines, name string) {
	out.add(name, float64(c.equal), "equal", float64(c.all), c.all, strings.Join(c.wrong, "; "))
}

// list compares the positions in the kernel's list of sockets, which the agent's
// marking walk reads, with the bytes of both ends. Nothing may be on its way.
func (f *flows) list() (*comparison, error) {
	maps, err := bpf.NewMaps()
	if err != nil {
		return nil, err
	}
	defer maps.Close()
	ns, err := netns()
	if err != nil {
		return nil, err
	}
	for i, port := range f.ports {
		for _, remote := range []bool{false, true} {
			if err := maps.Watch(bpf.WatchKey{NetNS: ns, Port: port, Remote: remote}, i); err != nil {
				return nil, err
			}
		}
	}
	marker, err := sockqueue.NewMarker(maps)
	if err != nil {
		return nil, err
	}
	defer marker.Close()
	sockets := map[uint64]sockqueue.Socket{}
	if err := marker.Mark(func(s sockqueue.Socket) { sockets[s.Cookie] = s }); err != nil {
		return nil, err
	}
	c := &comparison{}
	for _, p := range f.pairs {
		for _, e := range []*end{p.client, p.server} {
			s := sockets[e.cookie]
			c.want(e.name+" arrived", s.Arrived, e.in)
			c.want(e.name+" read", s.Read, e.in)
			c.want(e.name+" written", s.Written, e.outPosition())
			c.want(e.name+" left", s.Left, e.outPosition())
		}
	}
	return c, nil
}

func (e *end) outPosition() uint64 {
	if e.opener {
		return e.out + 1
	}
	return e.out
}

func netns() (uint32, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &st); err != nil {
		return 0, fmt.Errorf("asking for the network namespace: %w", err)
	}
	return uint32(st.Ino), nil
}

// traced compares the last positions of the traced tier with the bytes.
func (f *flows) traced(traces []*attribution.Trace) *comparison {
	c := &comparison{}
	for _, p := range f.pairs {
		for _, e := range []*end{p.client, p.server} {
			if !e.watched {
				continue
			}
			last := map[attribution.StepKind]uint64{}
			for _, t := range traces {
				if t.Cookie != e.cookie {
					continue
				}
				for _, s := range t.Steps {
					last[s.Kind] = max(last[s.Kind], s.Pos)
				}
			}
			c.want(e.name+" arrived", last[attribution.Arrived], e.lastIn)
			c.want(e.name+" read", last[attribution.Read], e.lastIn)
			c.want(e.name+" sent", max(last[attribution.Sent], last[attribution.Left]), e.outPosition())
			c.want(e.name+" send", last[attribution.Send], e.outPosition())
		}
	}
	return c
}

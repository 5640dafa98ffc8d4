// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// mapping is a port that is forwarded to another one, as a container's is.
type mapping struct {
	outside, inside string
	taken           atomic.Int64 // connections
}

// forward maps a port to one on which nobody listens yet.
func forward(t *testing.T) *mapping {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mapping{outside: l.Addr().String(), inside: free.Addr().String()}
	free.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", m.inside)
			if err != nil {
				in.Close()
				continue
			}
			m.taken.Add(1)
			for _, c := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() {
					_, _ = io.Copy(c[0], c[1])
					c[0].Close()
					c[1].Close()
				})
			}
		}
	})
	t.Cleanup(func() { // after the nodes are closed
		l.Close()
		wg.Wait()
	})
	return m
}

func (m *mapping) listen() messenger.Listen {
	return messenger.Listen{Network: "tcp", Address: m.inside, Advertise: m.outside}
}

// TestAdvertise: nodes that others reach by a mapped port stream to each other through it,
// whoever has the anchor and however the stream begins.
func TestAdvertise(t *testing.T) {
	at := [2]*mapping{forward(t), forward(t)}
	var nodes [2]*Node
	for i := range nodes {
		nodes[i] = node(t, Options{Listen: []messenger.Listen{at[i].listen()}})
		if got := listens(t, nodes[i]).Address; got != at[i].outside {
			t.Errorf("it says that it is at %s, want %s", got, at[i].outside)
		}
	}
	know(t, nodes[0], nodes[1])
	for _, w := range ways() {
		if w.local || w.key == wire.KeyTCPStream {
			continue
		}
		for i := range nodes {
			a := anchor(t, nodes[i], AnchorOptions{})
			s := w.begin(t, nodes[1-i], a)
			var wg sync.WaitGroup
			wg.Go(func() {
				send(t, s, 3, 0, 200) // most on credit that came back
				if err := s.Finalize(); err != nil {
					t.Error(err)
				}
			})
			receive(t, a, 3, 0, 200)
			wantEnd(t, a, io.EOF)
			wg.Wait()
		}
	}
	baseline(t, nodes[:]...)
	for i, m := range at {
		if m.taken.Load() == 0 {
			t.Errorf("nobody reached node %d through its mapping", i)
		}
	}
}

// TestAdvertiseStreams: streams with a connection of their own come in by a mapped port of
// their own, or not at all.
func TestAdvertiseStreams(t *testing.T) {
	messages, streams := forward(t), forward(t)
	old := node(t, Options{noMux: true})
	with := node(t, Options{Listen: []messenger.Listen{messages.listen()}, Streams: streams.listen()})
	know(t, old, with)
	a := anchor(t, with, AnchorOptions{})
	s := attach(t, old, a)
	send(t, s, 1, 0, 30)
	if err := s.Finalize(); err != nil {
		t.Error(err)
	}
	receive(t, a, 1, 0, 30)
	wantEnd(t, a, io.EOF)
	if n := streams.taken.Load(); n != 1 {
		t.Errorf("%d connections came in by the mapping of streams, want 1", n)
	}

	without := node(t, Options{Listen: []messenger.Listen{forward(t).listen()}})
	entries, err := without.PeerInfo().Address.Entries()
	if err != nil || len(entries) != 1 || entries["tcp"] == nil {
		t.Errorf("it announces %v (%v), want tcp alone", entries, err)
	}
	plain := forward(t)
	fixed := node(t, Options{Streams: messenger.Listen{Network: "tcp", Address: plain.inside}})
	if entries, err = fixed.PeerInfo().Address.Entries(); err != nil {
		t.Fatal(err)
	}
	if list, err := wire.ParseEndpoints(entries[wire.KeyTCPStream]); err != nil || len(list) != 1 || netip.AddrPortFrom(list[0].IP, list[0].Port).String() != plain.inside {
		t.Errorf("streams come in at %v (%v), want %s", list, err, plain.inside)
	}
}

func TestBadStreams(t *testing.T) {
	tcp := []messenger.Listen{{Network: "tcp", Address: "127.0.0.1:0"}}
	mapped := []messenger.Listen{{Network: "tcp", Address: "127.0.0.1:0", Advertise: "192.0.2.1:1"}}
	for _, c := range []struct {
		name    string
		listen  []messenger.Listen
		streams messenger.Listen
		is      error
		says    string
	}{
		{"on a Unix socket", tcp, messenger.Listen{Network: "unix", Address: "127.0.0.1:0"}, nil, "on tcp"},
		{"no address", mapped, messenger.Listen{Network: "tcp", Advertise: "192.0.2.1:2"}, nil, "an address on tcp"},
		{"no port", tcp, messenger.Listen{Network: "tcp", Address: "127.0.0.1"}, nil, "missing port"},
		{"for everybody", tcp, messenger.Listen{Network: "tcp", Address: ":0"}, transport.ErrInsecure, "loopback"},
		{"a mapping for messages alone", mapped, messenger.Listen{Network: "tcp", Address: "127.0.0.1:0"}, nil, "Advertise"},
		{"a host name", mapped, messenger.Listen{Network: "tcp", Address: "127.0.0.1:0", Advertise: "localhost:1"}, nil, "Advertise"},
	} {
		n, err := New(Options{Listen: c.listen, Streams: c.streams})
		if err == nil {
			n.Close()
			t.Errorf("%s: it starts", c.name)
			continue
		}
		if c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "listening for streams") {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

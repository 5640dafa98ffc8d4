// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"errors"
	"io"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/transport/maptest"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// listensAt is where a node behind the mapping listens.
func listensAt(m *maptest.Mapping) messenger.Listen {
	return messenger.Listen{Network: "tcp", Address: m.Inside, Advertise: m.Outside}
}

// TestAdvertise: nodes that others reach by a mapped port stream to each other through it,
// whoever has the anchor and however the stream begins.
func TestAdvertise(t *testing.T) {
	at := [2]*maptest.Mapping{maptest.Forward(t), maptest.Forward(t)}
	var nodes [2]*Node
	for i := range nodes {
		nodes[i] = node(t, Options{Listen: []messenger.Listen{listensAt(at[i])}})
		if got := listens(t, nodes[i]).Address; got != at[i].Outside {
			t.Errorf("it says that it is at %s, want %s", got, at[i].Outside)
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
		if m.Taken.Load() == 0 {
			t.Errorf("nobody reached node %d through its mapping", i)
		}
	}
}

// TestAdvertiseStreams: streams with a connection of their own come in by a mapped port of
// their own, or not at all.
func TestAdvertiseStreams(t *testing.T) {
	messages, streams := maptest.Forward(t), maptest.Forward(t)
	old := node(t, Options{noMux: true})
	with := node(t, Options{Listen: []messenger.Listen{listensAt(messages)}, Streams: listensAt(streams)})
	know(t, old, with)
	a := anchor(t, with, AnchorOptions{})
	s := attach(t, old, a)
	send(t, s, 1, 0, 30)
	if err := s.Finalize(); err != nil {
		t.Error(err)
	}
	receive(t, a, 1, 0, 30)
	wantEnd(t, a, io.EOF)
	if n := streams.Taken.Load(); n != 1 {
		t.Errorf("%d connections came in by the mapping of streams, want 1", n)
	}

	without := node(t, Options{Listen: []messenger.Listen{listensAt(maptest.Forward(t))}})
	entries, err := without.PeerInfo().Address.Entries()
	if err != nil || len(entries) != 1 || entries["tcp"] == nil {
		t.Errorf("it announces %v (%v), want tcp alone", entries, err)
	}
	plain := maptest.Forward(t)
	fixed := node(t, Options{Streams: messenger.Listen{Network: "tcp", Address: plain.Inside}})
	if entries, err = fixed.PeerInfo().Address.Entries(); err != nil {
		t.Fatal(err)
	}
	if list, err := wire.ParseEndpoints(entries[wire.KeyTCPStream]); err != nil || len(list) != 1 || netip.AddrPortFrom(list[0].IP, list[0].Port).String() != plain.Inside {
		t.Errorf("streams come in at %v (%v), want %s", list, err, plain.Inside)
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

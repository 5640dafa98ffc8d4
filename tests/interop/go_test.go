// SPDX-License-Identifier: Apache-2.0

package interop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// versions are the Rust peers, each with the transport that a stream to or from it has.
var versions = []struct {
	version, key string
	flags        []string
}{
	{"0.12.0", wire.KeyV1, nil},
	{"0.21.0", wire.KeyV2, nil},
	{"0.12.0", wire.KeyTCPStream, []string{"--mux", "off"}},
	{"0.21.0", wire.KeyTCPStream, []string{"--mux", "off"}},
}

// withEach runs f against every Rust peer.
func withEach(t *testing.T, f func(t *testing.T, r *rust, n *plane.Node, key string)) {
	for _, v := range versions {
		t.Run(fmt.Sprintf("%s %s", v.version, v.key), func(t *testing.T) {
			r := start(t, v.version, v.flags...)
			f(t, r, node(t, r, plane.Options{}), v.key)
		})
	}
}

// bare starts a Go node that knows nobody.
func bare(t *testing.T, o plane.Options) *plane.Node {
	t.Helper()
	o.Listen = []messenger.Listen{{Network: "tcp", Address: "127.0.0.1:0"}}
	n, err := plane.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// node starts a Go node that knows the Rust peer, and is known to it.
func node(t *testing.T, r *rust, o plane.Options) *plane.Node {
	t.Helper()
	n := bare(t, o)
	if err := n.Register(r.peer); err != nil {
		t.Fatal(err)
	}
	r.ask("registered", map[string]any{"cmd": "register", "peer": n.PeerInfo()})
	return n
}

// record is what a Rust peer sends and checks.
func record(dst []byte, stream, sequence uint64, size int) []byte {
	dst = binary.BigEndian.AppendUint64(dst[:0], stream)
	dst = binary.BigEndian.AppendUint64(dst, sequence)
	for i := 16; i < size; i++ {
		dst = append(dst, byte(stream*31+sequence*7+uint64(i)))
	}
	return dst
}

// send sends the records from up to to of a stream.
func send(t *testing.T, s *plane.Sender, stream uint64, from, to, size int) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var b []byte
	for i := from; i < to; i++ {
		b = record(b, stream, uint64(i), size)
		if err := s.Send(ctx, b); err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
	}
	return nil
}

// receive reads the records from up to to of a stream, all of which must be right.
func receive(t *testing.T, a *plane.Anchor, stream uint64, from, to, size int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var want []byte
	for i := from; i < to; i++ {
		b, err := a.Recv(ctx)
		if want = record(want, stream, uint64(i), size); err != nil || string(b) != string(want) {
			t.Errorf("stream %d: record %d has %d bytes: %v", stream, i, len(b), err)
			return
		}
	}
}

func wantEnd(t *testing.T, a *plane.Anchor, want error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if b, err := a.Recv(ctx); !errors.Is(err, want) {
		t.Errorf("the stream ends with %v (%d bytes), want %v", err, len(b), want)
	}
}

func anchor(t *testing.T, n *plane.Node, o plane.AnchorOptions) *plane.Anchor {
	t.Helper()
	a, err := n.NewAnchor(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func attach(t *testing.T, n *plane.Node, h wire.Handle, key string) *plane.Sender {
	t.Helper()
	s, err := n.Attach(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	if s.Transport() != key {
		t.Errorf("the transport is %q, want %q", s.Transport(), key)
	}
	return s
}

func done(t *testing.T, s *plane.Sender, want error) {
	t.Helper()
	select {
	case <-s.Done():
		if err := s.Err(); !errors.Is(err, want) {
			t.Errorf("the sender ended with %v, want %v", err, want)
		}
	case <-time.After(patience):
		t.Errorf("the sender was not told")
	}
}

// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"encoding/binary"
	"testing"

	"go.uber.org/goleak"

	"github.com/velo-agent/velo-agent/plane/messenger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node starts one on loopback.
func node(t testing.TB, o Options) *Node {
	t.Helper()
	if o.Listen == nil {
		o.Listen = []messenger.Listen{{Network: "tcp", Address: "127.0.0.1:0"}}
	}
	n, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// peers makes two nodes that know each other.
func peers(t testing.TB, a, b Options) (*Node, *Node) {
	t.Helper()
	x, y := node(t, a), node(t, b)
	know(t, x, y)
	return x, y
}

func know(t testing.TB, x, y *Node) {
	t.Helper()
	if err := x.Register(y.PeerInfo()); err != nil {
		t.Fatal(err)
	}
	if err := y.Register(x.PeerInfo()); err != nil {
		t.Fatal(err)
	}
}

// record is what tests/interop's peers send and check.
func record(dst []byte, stream, sequence uint64, size int) []byte {
	dst = binary.BigEndian.AppendUint64(dst[:0], stream)
	dst = binary.BigEndian.AppendUint64(dst, sequence)
	for i := 16; i < size; i++ {
		dst = append(dst, byte(stream*31+sequence*7+uint64(i)))
	}
	return dst
}

func isRecord(b []byte, stream, sequence uint64, size int) bool {
	return string(b) == string(record(nil, stream, sequence, size))
}

// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// counter is a Handler that counts frames.
type counter struct{ frames atomic.Uint64 }

func (c *counter) Frame(*Conn, wire.FrameType, []byte, []byte) { c.frames.Add(1) }
func (c *counter) Closed(*Conn, error)                         {}

// TestReaderAllocates holds the reader to no allocation for any number of frames.
func TestReaderAllocates(t *testing.T) {
	var h counter
	tr := newTransport(t, "tcp", &h, Options{})
	c := newConn(tr, nil, nil, Buffers{})
	var stream []byte
	for i := range uint32(300) {
		stream = append(stream, frame(wire.Message, i, 160)...)
	}
	var r reader
	feed := func() {
		for rest := stream; len(rest) > 0; {
			n := copy(r.room(), rest)
			r.end += n
			rest = rest[n:]
			if err := c.deliver(&h, &r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := testing.AllocsPerRun(100, feed); n != 0 {
		t.Fatalf("%v allocations for %d bytes of frames", n, len(stream))
	}
	if h.frames.Load() != 101*300 {
		t.Fatalf("%d frames seen", h.frames.Load())
	}
}

// endless is a Source of one frame, so many times.
type endless struct {
	frame []byte
	left  atomic.Int64
}

func (e *endless) Take() []byte {
	if e.left.Add(-1) < 0 {
		return nil
	}
	return e.frame
}

func (e *endless) Wrote([]byte) {}

// BenchmarkSource moves batches of a source from one end of a connection to the other.
func BenchmarkSource(b *testing.B) {
	for _, size := range []int{200, 4 << 10, 60 << 10} {
		b.Run(fmt.Sprintf("%d bytes", size), func(b *testing.B) {
			var h counter
			server, _ := New("tcp", &h, Options{})
			defer server.Close()
			l, err := server.Listen("127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			c, err := server.Dial(b.Context(), l.Addr().String(), nil)
			if err != nil {
				b.Fatal(err)
			}
			e := &endless{frame: frame(wire.Message, 1, size)}
			c.SetSource(e)
			b.ReportAllocs()
			b.SetBytes(int64(size))
			b.ResetTimer()
			e.left.Store(int64(b.N))
			c.Kick()
			for h.frames.Load() < uint64(b.N) {
				time.Sleep(100 * time.Microsecond)
			}
		})
	}
}

// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// TestMalformed: the connection is closed and counted, and no other one notices.
func TestMalformed(t *testing.T) {
	whole := frame(wire.Message, 1, 10)
	broken := func(at int, b byte) []byte {
		f := frame(wire.Message, 2, 10)
		f[at] = b
		return f
	}
	for _, c := range []struct {
		name string
		send []byte
		want error
	}{
		{"version", broken(1, 2), wire.ErrVersion},
		{"type", broken(2, 5), wire.ErrFrameType},
		{"size", broken(7, 1), wire.ErrFrameSize},
		{"cut", whole[:len(whole)-1], ErrTruncated},
		{"cut preamble", whole[:3], ErrTruncated},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, _ := NewMetrics(nil)
			r := newRecorder()
			server := newTransport(t, "tcp", r, Options{Metrics: m})
			address := listen(t, server)
			other := newTransport(t, "tcp", newRecorder(), Options{})
			good := dial(t, other, address)
			bad := plain(t, "tcp", address)
			bad.Write(append(whole[:len(whole):len(whole)], c.send...))
			if f := r.next(t); f.word != 1 {
				t.Fatalf("the frame before it came as %+v", f)
			}
			bad.(*net.TCPConn).CloseWrite()
			wantErr(t, r.end(t), c.want)
			if got := value(t, m.rejections.WithLabelValues("tcp", "decode_error")); got != 1 {
				t.Errorf("%v decode errors counted", got)
			}
			good.TrySend(whole)
			r.next(t)
		})
	}
}

// TestSilent: half a frame, or none, does not stay; an idle connection does.
func TestSilent(t *testing.T) {
	whole := frame(wire.Message, 1, 10)
	for _, c := range []struct {
		name string
		send []byte
	}{
		{"nothing", nil},
		{"half a preamble", whole[:4]},
		{"half a frame", whole[:15]},
		{"one and a half", append(frame(wire.Message, 1, 5), whole[:15]...)},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRecorder()
			server := newTransport(t, "unix", r, Options{Patience: 100 * time.Millisecond})
			address := listen(t, server)
			plain(t, "unix", address).Write(c.send)
			wantErr(t, r.end(t), ErrIncomplete)
		})
	}
	r := newRecorder()
	server := newTransport(t, "tcp", r, Options{Patience: 40 * time.Millisecond})
	idle := plain(t, "tcp", listen(t, server))
	idle.Write(whole)
	c := r.next(t).c
	time.Sleep(200 * time.Millisecond)
	idle.Write(whole)
	if r.next(t).c != c {
		t.Fatal("the idle connection was not kept")
	}
}

// TestEndless: connections without end cost a bounded number of them, and who was there
// before does not notice, however long ago it spoke.
func TestEndless(t *testing.T) {
	for _, c := range []struct {
		name string
		say  []byte
		o    Options
	}{
		{"half-open", nil, Options{HalfOpen: 16}},
		{"speaking", frame(wire.Message, 9, 1), Options{Accepted: 16}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRecorder()
			server := newTransport(t, "tcp", r, c.o)
			address := listen(t, server)
			honest := dial(t, newTransport(t, "tcp", newRecorder(), Options{}), address)
			for i := range uint32(4) {
				honest.TrySend(frame(wire.Message, i, 2))
				r.next(t)
			}
			const attack = 200
			for range attack {
				plain(t, "tcp", address).Write(c.say)
			}
			for range attack - 16 {
				wantErr(t, r.end(t), ErrCrowded)
			}
			honest.TrySend(frame(wire.Message, 1000, 0))
			for (<-r.frames).word != 1000 {
			}
			server.mu.Lock()
			defer server.mu.Unlock()
			if l := server.listeners[0]; l.silent > 16 || len(server.conns) > 18 {
				t.Fatalf("%d silent and %d connections in all", l.silent, len(server.conns))
			}
		})
	}
}

// TestCrowd: a host that takes more than the others makes room for them.
func TestCrowd(t *testing.T) {
	r := newRecorder()
	server := newTransport(t, "tcp", r, Options{Accepted: 16})
	address := listen(t, server)
	for range 40 {
		plain(t, "tcp", address).Write(frame(wire.Message, 9, 1))
	}
	for range 40 - 16 {
		r.end(t)
	}
	from := func(ip byte) net.Conn {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, ip)}}
		c, err := d.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	for ip := byte(2); ip < 8; ip++ {
		c := from(ip)
		r.end(t) // one of the crowd
		c.Write(frame(wire.Message, uint32(ip), 1))
		for (<-r.frames).word != uint32(ip) {
		}
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	for c := range server.conns {
		if n := server.listeners[0].hosts[c.Host()]; c.Host().As4()[3] != 1 && n != 1 {
			t.Errorf("%d connections of %s", n, c.Host())
		}
	}
}

// TestDeclared: a length that is only declared costs no memory.
func TestDeclared(t *testing.T) {
	var r reader
	copy(r.room(), wire.AppendPreamble(nil, wire.Message, 0, wire.MaxFrame))
	r.end = wire.PreambleLen
	for range 20 {
		if _, frame, err := r.next(); frame != nil || err != nil {
			t.Fatal(frame, err)
		}
		r.room()
	}
	if len(r.buf) > trusted {
		t.Fatalf("a buffer of %d bytes for a frame of which %d have come", len(r.buf), r.end)
	}
}

// TestTrickle feeds frames of many sizes in pieces of many sizes, and looks at the
// buffer afterwards.
func TestTrickle(t *testing.T) {
	var stream []byte
	sizes := []int{0, 1, 10, 5000, 65_521, 65_522, 70_000, 300_000, 3, 1 << 20, 0, 600, 70_000, 70_000}
	for i, size := range sizes {
		stream = append(stream, frame(wire.Message, uint32(i), size)...)
	}
	for _, piece := range []int{1, 2, 7, 11, 1000, 65_536, 1 << 20} {
		if piece < 7 && testing.Short() {
			continue
		}
		var r reader
		n := 0
		for rest := stream; len(rest) > 0; {
			room := r.room()
			if len(room) == 0 {
				t.Fatalf("no room at %d pending of %d", r.end-r.start, r.want)
			}
			got := copy(room[:min(piece, len(room))], rest)
			rest = rest[got:]
			r.end += got
			for {
				p, f, err := r.next()
				if err != nil {
					t.Fatal(err)
				}
				if f == nil {
					break
				}
				if p.Payload != sizes[n] || f[3] != byte(n) || len(f) > 4 && f[len(f)-1] != byte(n) {
					t.Fatalf("pieces of %d: frame %d came with %d bytes", piece, n, p.Payload)
				}
				n++
			}
		}
		if r.room(); n != len(sizes) || len(r.buf) != readBuffer {
			t.Fatalf("pieces of %d: %d frames, then a buffer of %d bytes", piece, n, len(r.buf))
		}
	}
}

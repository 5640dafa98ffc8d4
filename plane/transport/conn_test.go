// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/velo-agent/velo-agent/plane/wire"
)

var networks = []string{"tcp", "unix"}

func TestFramesArriveInOrder(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			r := newRecorder()
			server, client := newTransport(t, network, r, Options{}), newTransport(t, network, newRecorder(), Options{})
			c := dial(t, client, listen(t, server))
			sizes := []int{0, 1, 100, 65_525, 65_526, 300_000, 7, wire.MaxFrame - 4, 20}
			for i, size := range sizes {
				if err := c.Send(context.Background(), frame(wire.Response, uint32(i), size)); err != nil {
					t.Fatal(err)
				}
			}
			for i, size := range sizes {
				if f := r.next(t); f.word != uint32(i) || f.size != size || f.t != wire.Response || !f.good {
					t.Fatalf("frame %d of %d bytes came as %+v", i, size, f)
				}
			}
		})
	}
}

func TestAnswersOnTheSameConnection(t *testing.T) {
	r := newRecorder()
	server := newTransport(t, "tcp", newRecorder(), Options{})
	client := newTransport(t, "tcp", r, Options{})
	echo := server.handler.(*recorder)
	dial(t, client, listen(t, server)).TrySend(frame(wire.Message, 1, 10))
	if f := echo.next(t); !f.c.TrySend(frame(wire.ShuttingDown, 2, 0)) {
		t.Fatal("the answer was not queued")
	}
	if f := r.next(t); f.t != wire.ShuttingDown || !f.c.Dialed() {
		t.Fatalf("got %+v", f)
	}
}

// list is a Source of given frames.
type list struct {
	mu     sync.Mutex
	frames [][]byte
	taken  int
	wrote  int
}

func (l *list) Take() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.frames) == 0 {
		return nil
	}
	f := l.frames[0]
	l.frames = l.frames[1:]
	l.taken++
	return f
}

func (l *list) Wrote([]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrote++
}

func (l *list) add(f []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.frames = append(l.frames, f)
}

func (l *list) counts() (taken, wrote int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.taken, l.wrote
}

func TestSource(t *testing.T) {
	r := newRecorder()
	server, client := newTransport(t, "tcp", r, Options{}), newTransport(t, "tcp", newRecorder(), Options{})
	c := dial(t, client, listen(t, server))
	var l list
	c.SetSource(&l)
	const n = 10_000
	go func() {
		for i := range uint32(n) {
			l.add(frame(wire.Message, i, int(i%200)))
			c.Kick()
		}
	}()
	for i := range uint32(n) {
		if f := r.next(t); f.word != i || !f.good {
			t.Fatalf("frame %d came as %+v", i, f)
		}
	}
	c.SetSource(nil)
	l.add(frame(wire.Message, n, 0))
	c.Kick()
	c.Send(context.Background(), frame(wire.Ack, 77, 0))
	if f := r.next(t); f.word != 77 {
		t.Fatalf("a frame of a source that is off the connection: %+v", f)
	}
	client.Close()
	if taken, wrote := l.counts(); taken != n || wrote != n {
		t.Fatalf("%d taken and %d written, want %d of both", taken, wrote, n)
	}
}

// TestStalled holds a peer that does not read: sends wait, others' contexts end, and what
// was taken of the source and not written when the connection ended is not said to be.
func TestStalled(t *testing.T) {
	m, _ := NewMetrics(nil)
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			nl, err := net.Listen(network, anywhere(t, network))
			if err != nil {
				t.Fatal(err)
			}
			defer nl.Close()
			r := newRecorder()
			client := newTransport(t, network, r, Options{Metrics: m, Buffer: 64 << 10})
			c := dial(t, client, nl.Addr().String())
			var l list
			batch, message := frame(wire.Message, 1, 60<<10), frame(wire.Message, 2, 60<<10)
			for range 10_000 {
				l.add(batch)
			}
			c.SetSource(&l)
			c.Kick()
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			for sent := 0; ; sent++ {
				if err := c.Send(ctx, message); err != nil {
					wantErr(t, err, context.DeadlineExceeded)
					if sent < queueFrames {
						t.Fatalf("%d frames sent, want at least what the queue holds", sent)
					}
					break
				}
			}
			if c.TrySend(frame(wire.Message, 2, 0)) {
				t.Fatal("a full queue took a frame")
			}
			waiting := make(chan error)
			go func() { waiting <- c.Send(context.Background(), frame(wire.Message, 3, 0)) }()
			c.Close()
			wantErr(t, r.end(t), ErrClosed)
			if err := <-waiting; err != nil { // it may have got in before the end
				wantErr(t, err, ErrClosed)
			}
			wantErr(t, c.Send(context.Background(), frame(wire.Message, 3, 0)), ErrClosed)
			if taken, wrote := l.counts(); taken == 0 || taken != wrote+1 { // the last was not written
				t.Fatalf("%d taken, %d written", taken, wrote)
			}
		})
	}
	if value(t, m.backpressure.WithLabelValues("uds")) == 0 {
		t.Fatal("no backpressure counted")
	}
	if value(t, m.rejections.WithLabelValues("tcp", "send_error")) < queueFrames {
		t.Fatal("the queued frames are not counted as lost")
	}
}

func TestStuckWrite(t *testing.T) {
	nl, err := net.Listen("unix", anywhere(t, "unix"))
	if err != nil {
		t.Fatal(err)
	}
	defer nl.Close()
	r := newRecorder()
	client := newTransport(t, "unix", r, Options{Buffer: 64 << 10, Patience: 100 * time.Millisecond})
	c := dial(t, client, nl.Addr().String())
	for c.TrySend(frame(wire.Message, 1, 1<<20)) {
	}
	wantErr(t, r.end(t), ErrStuck)
}

func TestSync(t *testing.T) {
	r := newRecorder()
	server, client := newTransport(t, "tcp", r, Options{}), newTransport(t, "tcp", newRecorder(), Options{})
	c := dial(t, client, listen(t, server))
	for i := range uint32(100) {
		c.TrySend(frame(wire.Message, i, 1000))
	}
	if err := c.Sync(context.Background()); err != nil {
		t.Fatal(err)
	}
	c.Close()
	for range 100 {
		r.next(t)
	}
	wantErr(t, r.end(t), io.EOF)
	wantErr(t, c.Sync(context.Background()), ErrClosed)
}

func TestPing(t *testing.T) {
	for _, network := range networks {
		r := newRecorder()
		tr := newTransport(t, network, r, Options{})
		address := listen(t, tr)
		if err := tr.Ping(context.Background(), address); err != nil {
			t.Fatal(err)
		}
		wantErr(t, r.end(t), io.EOF)
		dial(t, tr, address).TrySend(frame(wire.Message, 5, 5))
		r.next(t)
		tr.Close()
		err := tr.Ping(context.Background(), address)
		if !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ENOENT) {
			t.Fatalf("a listener that is gone answers %v", err)
		}
	}
}

func TestBuffers(t *testing.T) {
	for _, network := range networks {
		r := newRecorder()
		tr := newTransport(t, network, r, Options{Buffer: 100_000})
		c := dial(t, tr, listen(t, tr))
		c.TrySend(frame(wire.Message, 5, 5))
		for _, b := range []Buffers{c.Buffers(), r.next(t).c.Buffers()} {
			if b != (Buffers{Asked: 100_000, Send: 100_000, Receive: 100_000}) {
				t.Errorf("%s: granted %+v", network, b)
			}
		}
	}
	clamped := newTransport(t, "tcp", newRecorder(), Options{Buffer: 1 << 30})
	b := dial(t, clamped, listen(t, clamped)).Buffers()
	if !b.Clamped || b.Send >= 1<<30 {
		t.Errorf("asked for 1 GiB, granted %+v", b)
	}
	if got := (Buffers{Send: 2000, Receive: 1000}).Ceiling(10 * time.Millisecond); got != 100_000 {
		t.Errorf("1,000 bytes per 10 ms make %v bytes a second", got)
	}
}

func TestMetrics(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewMetrics(reg); err == nil {
		t.Fatal("two nodes on one registry")
	}
	r := newRecorder()
	server, client := newTransport(t, "tcp", r, Options{}), newTransport(t, "tcp", newRecorder(), Options{Metrics: m})
	c := dial(t, client, listen(t, server))
	c.TrySend(frame(wire.Message, 1, 96))
	var l list
	l.add(append(frame(wire.Message, 2, 10), frame(wire.Ack, 3, 0)...))
	c.SetSource(&l)
	c.Kick()
	for range 3 {
		r.next(t)
	}
	client.Close()
	for what, want := range map[prometheus.Metric]float64{
		m.frames.WithLabelValues("tcp", "outbound", "message", "accepted"): 2,
		m.bytes.WithLabelValues("tcp", "outbound", "message"):              114,
		m.bytes.WithLabelValues("tcp", "outbound", "ack"):                  4,
		m.written.WithLabelValues("tcp", "message"):                        2,
		m.written.WithLabelValues("tcp", "ack"):                            1,
		m.connections.WithLabelValues("tcp"):                               0,
	} {
		if got := value(t, what); got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
	if got := value(t, m.queueWait.WithLabelValues("tcp").(prometheus.Metric)); got != 2 {
		t.Errorf("%v waits in the queue, want one for each that the writer took", got)
	}
}

// TestLateFrame: a frame that is queued while a round gathers has not waited; a negative
// wait takes the sum back, which reads as a reset.
func TestLateFrame(t *testing.T) {
	m, err := NewMetrics(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder()
	server, client := newTransport(t, "tcp", r, Options{}), newTransport(t, "tcp", newRecorder(), Options{Metrics: m})
	c := dial(t, client, listen(t, server))
	later := client.now() + int64(time.Minute)
	c.kickedAt.Store(later)
	var l list
	l.add(frame(wire.Ack, 2, 0))
	c.SetSource(&l)
	c.queue <- queued{frame: frame(wire.Message, 1, 96), since: later}
	c.Kick()
	r.next(t)
	r.next(t)
	client.Close()
	var d dto.Metric
	if err := m.queueWait.WithLabelValues("tcp").(prometheus.Metric).Write(&d); err != nil {
		t.Fatal(err)
	}
	if h := d.GetHistogram(); h.GetSampleCount() != 2 || h.GetSampleSum() < 0 || h.GetSampleSum() > time.Second.Seconds() {
		t.Errorf("%d waits of %v s in all, want two of nothing", h.GetSampleCount(), h.GetSampleSum())
	}
}

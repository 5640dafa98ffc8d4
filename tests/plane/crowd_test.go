// SPDX-License-Identifier: Apache-2.0

package plane_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/wire"
)

const recordSize = 160

// record says which it is, of which stream.
func record(dst []byte, stream, sequence uint64, size int) []byte {
	dst = binary.BigEndian.AppendUint64(dst[:0], stream)
	dst = binary.BigEndian.AppendUint64(dst, sequence)
	for i := 16; i < size; i++ {
		dst = append(dst, byte(stream*31+sequence*7+uint64(i)))
	}
	return dst
}

// complaints are what went wrong, by whatever goroutine saw it; the first few are told.
type complaints struct {
	n     atomic.Int64
	mu    sync.Mutex
	first []string
}

func (c *complaints) add(format string, args ...any) {
	if c.n.Add(1) > 5 {
		return
	}
	c.mu.Lock()
	c.first = append(c.first, fmt.Sprintf(format, args...))
	c.mu.Unlock()
}

func (c *complaints) tell(t testing.TB) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.first {
		t.Error(s)
	}
	if n := c.n.Load(); n > int64(len(c.first)) {
		t.Errorf("… and so on: %d in all", n)
	}
}

// takers read many streams, most with one poller and every 16th with a goroutine that
// calls RecvEvent, and check every record.
type takers struct {
	complaints
	list   []*taker
	begun  atomic.Int64 // streams of which a record came
	left   atomic.Int64 // streams that have no end
	took   atomic.Int64 // records
	poller *plane.Poller
}

type taker struct {
	number uint64
	anchor *plane.Anchor
	next   uint64
	end    error
}

func newTakers() *takers {
	ts := &takers{}
	ts.poller = plane.NewPoller(ts.take)
	return ts
}

// anchor makes a stream's place at the consumer.
func (ts *takers) anchor(n *plane.Node, number uint64) (*plane.Anchor, error) {
	k := &taker{number: number}
	a, err := n.NewAnchor(plane.AnchorOptions{Value: k})
	if err != nil {
		return nil, err
	}
	k.anchor = a
	ts.list = append(ts.list, k)
	ts.left.Add(1)
	if len(ts.list)%16 != 0 {
		ts.poller.Add(a)
	}
	return a, nil
}

// run reads until ctx ends.
func (ts *takers) run(ctx context.Context) {
	var wg sync.WaitGroup
	for i := 15; i < len(ts.list); i += 16 {
		wg.Go(func() { ts.receive(ctx, ts.list[i]) })
	}
	_ = ts.poller.Run(ctx)
	wg.Wait()
}

// receive reads one stream, and once more after its end.
func (ts *takers) receive(ctx context.Context, k *taker) {
	for {
		e, err := k.anchor.RecvEvent(ctx)
		switch {
		case err == nil:
			ts.take(k.anchor, e)
		case ctx.Err() == nil && k.end == nil:
			ts.add("stream %d ends with %v, without an event", k.number, err)
			return
		case ctx.Err() == nil && !errors.Is(err, k.end) && err.Error() != k.end.Error():
			ts.add("stream %d ends with %v, and then with %v", k.number, k.end, err)
			return
		default:
			return
		}
	}
}

func (ts *takers) take(a *plane.Anchor, e plane.Event) {
	k := a.Value().(*taker)
	err := e.Error()
	switch {
	case k.end != nil:
		ts.add("stream %d: %v comes after the end %v", k.number, err, k.end)
	case err != nil:
		k.end = err
		ts.left.Add(-1)
	case len(e.Data) < 16:
		ts.add("stream %d: a record of %d bytes", k.number, len(e.Data))
	default:
		stream, sequence := binary.BigEndian.Uint64(e.Data), binary.BigEndian.Uint64(e.Data[8:])
		if stream != k.number || sequence != k.next || !intact(e.Data, stream, sequence) {
			ts.add("stream %d: record %d of stream %d comes, want record %d", k.number, sequence, stream, k.next)
		}
		if k.next++; k.next == 1 {
			ts.begun.Add(1)
		}
		ts.took.Add(1)
	}
}

func intact(b []byte, stream, sequence uint64) bool {
	for i := 16; i < len(b); i++ {
		if b[i] != byte(stream*31+sequence*7+uint64(i)) {
			return false
		}
	}
	return true
}

// makers feed many streams with one goroutine.
type makers struct {
	complaints
	list   []*maker
	by     map[*plane.Sender]*maker
	feeder plane.Feeder
	goal   atomic.Uint64 // records of each stream
	hasty  atomic.Bool   // does not rest between two rounds of the senders that have room
}

type maker struct {
	number uint64
	sender *plane.Sender
	sent   uint64
	over   bool
	err    error // why it could send no more
}

func newMakers() *makers {
	ms := &makers{by: map[*plane.Sender]*maker{}}
	ms.goal.Store(math.MaxUint64)
	return ms
}

func (ms *makers) add1(s *plane.Sender, number uint64) {
	m := &maker{number: number, sender: s}
	ms.list = append(ms.list, m)
	ms.by[s] = m
	ms.feeder.Add(s)
}

// run feeds until every stream is over.
func (ms *makers) run(ctx context.Context) {
	var list []*plane.Sender
	for _, m := range ms.list {
		list = append(list, m.sender)
	}
	var b []byte
	for left := len(ms.list); ; {
		for _, s := range list {
			if m := ms.by[s]; !m.over {
				if b = ms.feed(m, b); m.over {
					left--
				}
			}
		}
		if left == 0 {
			return
		}
		if !ms.hasty.Load() {
			time.Sleep(time.Millisecond)
		}
		var err error
		if list, err = ms.feeder.Next(ctx, list[:0]); err != nil {
			ms.add("%d producers were not told that their streams are over", left)
			return
		}
	}
}

// feed sends as much as there is room for.
func (ms *makers) feed(m *maker, b []byte) []byte {
	for {
		if m.sent >= ms.goal.Load() {
			m.over = true
			if err := m.sender.Finalize(); err != nil {
				m.err = err
			}
			return b
		}
		b = record(b, m.number, m.sent, recordSize)
		err := m.sender.TrySend(b)
		switch {
		case err == nil:
			m.sent++
		case errors.Is(err, plane.ErrWouldBlock):
			return b
		default:
			m.over, m.err = true, err
			m.sender.Close()
			return b
		}
	}
}

// crowd is many streams from one node to another that is in this process too.
type crowd struct {
	*takers
	makers   *makers
	from, to *site
	stop     context.CancelFunc
	wg       sync.WaitGroup
	fed      chan struct{} // closed when every producer's stream is over
}

// gather begins n streams, numbered from first on. Of those every so many are attached,
// the others have tickets; 0: none.
func gather(t testing.TB, from, to *site, first, n, attached int) *crowd {
	t.Helper()
	c := &crowd{takers: newTakers(), makers: newMakers(), from: from, to: to, fed: make(chan struct{})}
	for i := range n {
		number := uint64(first + i)
		a, err := c.anchor(to.Node, number)
		if err != nil {
			t.Fatal(err)
		}
		var s *plane.Sender
		if attached > 0 && i%attached == 0 {
			s, err = from.Attach(t.Context(), a.Handle())
		} else {
			var ticket *wire.Ticket
			if ticket, err = a.Ticket(0); err == nil {
				s, err = from.Open(a.Handle(), ticket)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		c.makers.add1(s, number)
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(context.Background())
	c.wg.Go(func() { c.run(ctx) })
	c.wg.Go(func() {
		defer close(c.fed)
		c.makers.run(ctx)
	})
	t.Cleanup(c.leave)
	return c
}

// live waits until a record of every stream was read.
func (c *crowd) live(t testing.TB) {
	t.Helper()
	eventually(t, func() string {
		if n := int(c.begun.Load()); n < len(c.list) {
			return fmt.Sprintf("of %d streams %d have begun", len(c.list), n)
		}
		return ""
	})
}

// more waits until as many records more were read.
func (c *crowd) more(t testing.TB, n int) {
	t.Helper()
	want := c.took.Load() + int64(n)
	eventually(t, func() string {
		if n := c.took.Load(); n < want {
			return fmt.Sprintf("%d records were read, want %d", n, want)
		}
		return ""
	})
}

// finish has the producers finalize.
func (c *crowd) finish() { c.makers.goal.Store(0) }

// ends are how many streams ended how, on one side.
type ends map[string]int

// over waits until every stream has ended on both sides, and says how. What consumers read
// must be what was sent, all of it where the stream is complete.
func (c *crowd) over(t testing.TB) (consumers, producers ends) {
	t.Helper()
	defer c.tell(t)
	eventually(t, func() string {
		if n := c.left.Load(); n > 0 && c.n.Load() == 0 {
			return fmt.Sprintf("%d of %d streams never end for their consumers (%d slots at the producer, %d at the consumer)", n, len(c.list), c.from.Live(), c.to.Live())
		}
		select {
		case <-c.fed:
			return ""
		default:
			return "there are producers whose streams never end"
		}
	})
	c.leave()
	c.makers.tell(t)
	consumers, producers = ends{}, ends{}
	for i, k := range c.list {
		m := c.makers.list[i]
		consumers[word(k.end)]++
		producers[word(m.err)]++
		if k.next > m.sent || k.end == io.EOF && k.next != m.sent {
			c.add("stream %d: %d records were sent, and %d read until its end: %v", k.number, m.sent, k.next, k.end)
		}
		if m.err != nil && !errors.Is(m.sender.Err(), m.err) && !errors.Is(m.err, m.sender.Err()) {
			c.add("stream %d: its sender says %v, sending failed with %v", k.number, m.sender.Err(), m.err)
		}
	}
	return consumers, producers
}

// complete finishes all streams, and wants every one whole.
func (c *crowd) complete(t testing.TB) {
	t.Helper()
	c.finish()
	consumers, producers := c.over(t)
	if consumers["complete"] != len(c.list) || producers["no error"] != len(c.list) {
		t.Errorf("of %d streams the consumers saw %v, the producers %v", len(c.list), consumers, producers)
	}
}

// leave ends the goroutines.
func (c *crowd) leave() {
	c.stop()
	c.wg.Wait()
}

// word is how a stream ended, in a word.
func word(err error) string {
	var failed *plane.TransportError
	switch {
	case err == nil:
		return "no error"
	case err == io.EOF:
		return "complete"
	case errors.Is(err, plane.ErrDropped):
		return "dropped"
	case errors.Is(err, plane.ErrPeerLost):
		return "peer lost"
	case errors.Is(err, plane.ErrCancelled):
		return "cancelled"
	case errors.As(err, &failed):
		return "failed"
	}
	return err.Error()
}

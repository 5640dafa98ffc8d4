// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// how is a way to begin a stream.
type how struct {
	name  string
	begin func(t testing.TB, from *Node, a *Anchor) *Sender
	local bool
	key   string
	opts  Options // of the producer
}

func attach(t testing.TB, from *Node, a *Anchor) *Sender {
	t.Helper()
	s, err := from.Attach(t.Context(), a.Handle())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func byTicket(t testing.TB, from *Node, a *Anchor) *Sender {
	t.Helper()
	ticket, err := a.Ticket(0)
	if err != nil {
		t.Fatal(err)
	}
	s, err := from.Open(a.Handle(), ticket)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func ways() []how {
	return []how{
		{name: "attach", begin: attach, key: wire.KeyV2},
		{name: "ticket", begin: byTicket, key: wire.KeyV2},
		{name: "local attach", begin: attach, local: true},
		{name: "local ticket", begin: byTicket, local: true},
		{name: "tcp-stream", begin: attach, key: wire.KeyTCPStream, opts: Options{noMux: true}},
	}
}

// withoutTicket are those of an anchor of many senders, which has none.
func withoutTicket() []how {
	return slices.DeleteFunc(ways(), func(w how) bool { return strings.HasSuffix(w.name, "ticket") })
}

// each runs f with a producer and a consumer for every way.
func each(t *testing.T, o Options, f func(t *testing.T, w how, producer, consumer *Node)) {
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			if w.local {
				n := node(t, o)
				f(t, w, n, n)
				return
			}
			p := o
			p.noMux = w.opts.noMux
			a, b := peers(t, p, o)
			f(t, w, a, b)
		})
	}
}

func anchor(t testing.TB, n *Node, o AnchorOptions) *Anchor {
	t.Helper()
	a, err := n.NewAnchor(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func send(t testing.TB, s *Sender, stream uint64, from, to int) {
	t.Helper()
	var b []byte
	for i := from; i < to; i++ {
		b = record(b, stream, uint64(i), 160)
		if err := s.Send(t.Context(), b); err != nil {
			t.Errorf("sending record %d of stream %d: %v", i, stream, err)
			return
		}
	}
}

func receive(t testing.TB, a *Anchor, stream uint64, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		b, err := a.Recv(t.Context())
		if err != nil || !isRecord(b, stream, uint64(i), 160) {
			t.Errorf("stream %d, record %d is %d bytes: %v", stream, i, len(b), err)
			return
		}
	}
}

func wantEnd(t testing.TB, a *Anchor, want error) {
	t.Helper()
	if b, err := a.Recv(t.Context()); !errors.Is(err, want) {
		t.Errorf("the stream ends with %v (%d bytes), want %v", err, len(b), want)
	}
}

// baseline waits until nothing of a stream is left.
func baseline(t testing.TB, nodes ...*Node) {
	t.Helper()
	var left string
	for range 1000 {
		left = ""
		for _, n := range nodes {
			if a, s, m := n.anchors.size.Load(), n.senders.size.Load(), n.mux.Live(); a != 0 || s != 0 || m != 0 {
				left = fmt.Sprintf("%d anchors, %d senders, %d slots", a, s, m)
			}
		}
		if left == "" {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Errorf("left behind: %s", left)
}

func TestStream(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w how, producer, consumer *Node) {
		a := anchor(t, consumer, AnchorOptions{})
		s := w.begin(t, producer, a)
		if s.Transport() != w.key {
			t.Errorf("the transport is %q, want %q", s.Transport(), w.key)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			send(t, s, 7, 0, 2000)
			if err := s.Finalize(); err != nil {
				t.Error(err)
			}
		})
		receive(t, a, 7, 0, 2000)
		wantEnd(t, a, io.EOF)
		wantEnd(t, a, io.EOF)
		wg.Wait()
		if err := s.Send(t.Context(), nil); !errors.Is(err, ErrClosed) {
			t.Errorf("sending after the end: %v", err)
		}
		baseline(t, producer, consumer)
	})
}

func TestEnds(t *testing.T) {
	var remote *TransportError
	for name, c := range map[string]struct {
		end  func(*Sender) error
		want func(error) bool
	}{
		"finalize": {(*Sender).Finalize, func(err error) bool { return err == io.EOF }},
		"close":    {(*Sender).Close, func(err error) bool { return errors.Is(err, ErrDropped) }},
		"fail":     {func(s *Sender) error { return s.Fail("out of memory") }, func(err error) bool { return errors.As(err, &remote) && remote.Text == "out of memory" }},
		"detach":   {(*Sender).Detach, func(err error) bool { return errors.Is(err, ErrDetached) }},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, Options{}, func(t *testing.T, w how, producer, consumer *Node) {
				a := anchor(t, consumer, AnchorOptions{})
				s := w.begin(t, producer, a)
				send(t, s, 1, 0, 3)
				if err := c.end(s); err != nil {
					t.Fatal(err)
				}
				receive(t, a, 1, 0, 3)
				if _, err := a.Recv(t.Context()); !c.want(err) {
					t.Errorf("the stream ends with %v", err)
				}
				if name != "detach" {
					baseline(t, producer, consumer)
				}
			})
		})
	}
}

func TestReattach(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w how, producer, consumer *Node) {
		a := anchor(t, consumer, AnchorOptions{})
		for round := range 5 {
			s := w.begin(t, producer, a)
			send(t, s, 1, round*10, round*10+1)
			receive(t, a, 1, round*10, round*10+1) // so that a ticket's stream has begun
			if _, err := producer.Attach(t.Context(), a.Handle()); !errors.Is(err, ErrRefused) {
				t.Errorf("a second attach: %v", err)
			}
			send(t, s, 1, round*10+1, round*10+10)
			if err := s.Detach(); err != nil {
				t.Fatal(err)
			}
			receive(t, a, 1, round*10+1, round*10+10)
			wantEnd(t, a, ErrDetached)
		}
		a.Close()
		baseline(t, producer, consumer)
	})
}

func TestSenderError(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w how, producer, consumer *Node) {
		a := anchor(t, consumer, AnchorOptions{})
		s := w.begin(t, producer, a)
		send(t, s, 1, 0, 1)
		if err := s.SendError(t.Context(), "a bad token"); err != nil {
			t.Fatal(err)
		}
		send(t, s, 1, 1, 2)
		receive(t, a, 1, 0, 1)
		var e *SenderError
		if _, err := a.Recv(t.Context()); !errors.As(err, &e) || e.Text != "a bad token" {
			t.Errorf("got %v", err)
		}
		receive(t, a, 1, 1, 2)
		s.Close()
	})
}

func TestCancel(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w how, producer, consumer *Node) {
		a := anchor(t, consumer, AnchorOptions{})
		s := w.begin(t, producer, a)
		send(t, s, 1, 0, 5)
		receive(t, a, 1, 0, 5)
		a.Close()
		select {
		case <-s.Done():
		case <-time.After(10 * time.Second):
			t.Fatal("the sender was not told")
		}
		want := ErrCancelled
		if w.key == wire.KeyTCPStream && errors.Is(s.Err(), ErrPeerLost) {
			want = ErrPeerLost // its connection went before the message came
		}
		if err := s.Err(); !errors.Is(err, want) {
			t.Errorf("the sender ended with %v", err)
		}
		for s.Send(t.Context(), nil) == nil {
		}
		wantEnd(t, a, ErrClosed)
		s.Close()
		baseline(t, producer, consumer)
	})
}

// TestCancelBlocked: a sender that waits for credit is woken.
func TestCancelBlocked(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w how, producer, consumer *Node) {
		a := anchor(t, consumer, AnchorOptions{})
		s := w.begin(t, producer, a)
		ended := make(chan error)
		go func() {
			big := make([]byte, 10_000)
			for {
				if err := s.Send(context.Background(), big); err != nil {
					ended <- err
					return
				}
			}
		}()
		time.Sleep(20 * time.Millisecond)
		a.Close()
		if err := <-ended; !errors.Is(err, ErrCancelled) && !errors.Is(err, ErrPeerLost) {
			t.Errorf("the sender ended with %v", err)
		}
		s.Close()
		baseline(t, producer, consumer)
	})
}

func TestStop(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w how, producer, consumer *Node) {
		a := anchor(t, consumer, AnchorOptions{})
		s := w.begin(t, producer, a)
		send(t, s, 1, 0, 3)
		receive(t, a, 1, 0, 1)
		a.Stop()
		wantStopped(t, s)
		send(t, s, 1, 3, 5) // what it still has to say
		if err := s.Finalize(); err != nil {
			t.Error(err)
		}
		receive(t, a, 1, 1, 5)
		wantEnd(t, a, io.EOF)
		baseline(t, producer, consumer)
	})
}

func TestStopBeforeOpen(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w how, producer, consumer *Node) {
		a := anchor(t, consumer, AnchorOptions{})
		a.Stop()
		s := w.begin(t, producer, a)
		wantStopped(t, s)
		s.Finalize()
	})
}

// wantStopped waits until the sender is asked to finish.
func wantStopped(t *testing.T, s *Sender) {
	t.Helper()
	select {
	case <-s.Stopped():
	case <-time.After(10 * time.Second):
		t.Fatal("the sender was not told")
	}
	if !s.StopRequested() || s.Err() != nil {
		t.Errorf("stop requested %v, error %v", s.StopRequested(), s.Err())
	}
}

// TestStopMany: each sender of an MPSC anchor is asked, those of other nodes and of its
// own, and who comes later.
func TestStopMany(t *testing.T) {
	for _, w := range withoutTicket() {
		t.Run(w.name, func(t *testing.T) {
			consumer := node(t, Options{})
			from := consumer
			if !w.local {
				from = node(t, w.opts)
				know(t, from, consumer)
			}
			a := anchor(t, consumer, AnchorOptions{MPSC: true})
			senders := []*Sender{attach(t, from, a), attach(t, from, a), attach(t, consumer, a)}
			for i, s := range senders {
				send(t, s, uint64(i), 0, 2)
				if s.StopRequested() {
					t.Error("a sender is asked before the consumer did")
				}
			}
			a.Stop()
			for range 2 {
				senders = append(senders, attach(t, from, a))
			}
			for i, s := range senders {
				wantStopped(t, s)
				send(t, s, uint64(i), 2, 4) // what it still has to say
				if err := s.Finalize(); err != nil {
					t.Error(err)
				}
			}
			records, ends := 0, 0
			for ends < len(senders) {
				e, err := a.RecvEvent(t.Context())
				if err == nil {
					err = e.Error()
				}
				switch err {
				case nil:
					records++
				case io.EOF:
					ends++
				default:
					t.Fatal(err)
				}
			}
			if want := 3*4 + 2*2; records != want {
				t.Errorf("%d records of %d", records, want)
			}
			a.Close()
			baseline(t, from, consumer)
		})
	}
}

// TestStopManyNameless: a sender that gave no handle for messages is asked over its slot.
func TestStopManyNameless(t *testing.T) {
	from, consumer := peers(t, Options{}, Options{})
	a := anchor(t, consumer, AnchorOptions{MPSC: true})
	begin := func() *Sender {
		s, err := from.newSender(a.Handle())
		if err != nil {
			t.Fatal(err)
		}
		body, err := json.Marshal(wire.AttachRequest{Handle: a.Handle(), SessionID: s.id, TransportKeys: []string{wire.KeyV2}})
		if err != nil {
			t.Fatal(err)
		}
		reply, err := from.messages.Call(t.Context(), consumer.Worker(), wire.HandlerMPSCAttach, body)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := wire.ParseAttachAnswer(reply, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := from.openSlot(s, a.Handle(), wire.V2, answer); err != nil {
			t.Fatal(err)
		}
		return &s.Sender
	}
	s := begin()
	send(t, s, 1, 0, 1)
	if e, err := a.RecvEvent(t.Context()); err != nil || !isRecord(e.Data, 1, 0, 160) {
		t.Fatal(e, err)
	}
	a.Stop()
	for _, s := range []*Sender{s, begin()} {
		wantStopped(t, s)
		s.Finalize()
	}
}

func TestMPSC(t *testing.T) {
	for _, w := range withoutTicket() {
		t.Run(w.name, func(t *testing.T) {
			consumer := node(t, Options{})
			producers := []*Node{consumer, consumer, consumer}
			if !w.local {
				for i := range producers {
					producers[i] = node(t, Options{noMux: w.opts.noMux})
					know(t, producers[i], consumer)
				}
			}
			a := anchor(t, consumer, AnchorOptions{MPSC: true, MaxSenders: 3})
			ends := []func(*Sender) error{(*Sender).Finalize, (*Sender).Detach, (*Sender).Close}
			var wg sync.WaitGroup
			var senders []*Sender
			for _, p := range producers {
				senders = append(senders, attach(t, p, a))
			}
			if _, err := producers[0].Attach(t.Context(), a.Handle()); !errors.Is(err, ErrRefused) {
				t.Errorf("a fourth sender: %v", err)
			}
			for i, s := range senders {
				wg.Go(func() {
					send(t, s, uint64(i), 0, 500)
					if err := ends[i](s); err != nil {
						t.Error(err)
					}
				})
			}
			next, of := map[uint64]uint64{}, map[uint64]uint64{}
			for ended := 0; ended < 3; {
				e, err := a.RecvEvent(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if e.Ends() {
					ended++
					if want := []wire.FrameKind{wire.Finalized, wire.Detached, wire.Dropped}[of[e.Sender]]; e.Kind != want {
						t.Errorf("sender %d ends with %v, want %v", e.Sender, e.Kind, want)
					}
					continue
				}
				stream := uint64(e.Data[7])
				if n, seen := of[e.Sender]; seen && n != stream {
					t.Fatalf("sender %d sent records of streams %d and %d", e.Sender, n, stream)
				}
				of[e.Sender] = stream
				if !isRecord(e.Data, stream, next[stream], 160) {
					t.Fatalf("stream %d: want record %d, got %x", stream, next[stream], e.Data[:16])
				}
				next[stream]++
			}
			for stream := range uint64(3) {
				if next[stream] != 500 {
					t.Errorf("%d records of stream %d", next[stream], stream)
				}
			}
			wg.Wait()
			a.Close()
			baseline(t, append(producers, consumer)...)
		})
	}
}

func TestTicketOnce(t *testing.T) {
	for _, local := range []bool{false, true} {
		producer, consumer := peers(t, Options{}, Options{})
		if local {
			producer = consumer
		}
		a := anchor(t, consumer, AnchorOptions{})
		ticket, err := a.Ticket(0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.Ticket(0); !errors.Is(err, ErrTicket) {
			t.Errorf("a second ticket: %v", err)
		}
		first, err := producer.Open(a.Handle(), ticket)
		if err != nil {
			t.Fatal(err)
		}
		send(t, first, 1, 0, 1)
		receive(t, a, 1, 0, 1)
		second, err := producer.Open(a.Handle(), ticket)
		if local {
			if !errors.Is(err, ErrTicket) {
				t.Errorf("a ticket used twice: %v", err)
			}
		} else {
			<-second.Done()
			if err := second.Err(); !errors.Is(err, ErrCancelled) {
				t.Errorf("a ticket used twice: %v", err)
			}
			second.Close()
		}
		send(t, first, 1, 1, 20)
		first.Finalize()
		receive(t, a, 1, 1, 20)
		wantEnd(t, a, io.EOF)
		baseline(t, producer, consumer)
	}
}

func TestUnattached(t *testing.T) {
	_, consumer := peers(t, Options{}, Options{AcceptWindow: time.Second, Unattached: time.Second})
	a, b := anchor(t, consumer, AnchorOptions{}), anchor(t, consumer, AnchorOptions{})
	if _, err := b.Ticket(0); err != nil {
		t.Fatal(err)
	}
	many := anchor(t, consumer, AnchorOptions{MPSC: true, Unattached: time.Second})
	for _, a := range []*Anchor{a, b, many} {
		wantEnd(t, a, ErrUnattached)
		wantEnd(t, a, ErrUnattached)
	}
	baseline(t, consumer)
}

func TestTooMany(t *testing.T) {
	from, to := peers(t, Options{MaxSenders: 1}, Options{MaxAnchors: 2})
	first, second := anchor(t, to, AnchorOptions{}), anchor(t, to, AnchorOptions{})
	if _, err := to.NewAnchor(AnchorOptions{}); !errors.Is(err, ErrTooMany) {
		t.Errorf("a third anchor: %v", err)
	}
	s := attach(t, from, first)
	if _, err := from.Attach(t.Context(), second.Handle()); !errors.Is(err, ErrTooMany) {
		t.Errorf("a second sender: %v", err)
	}
	s.Finalize()
	wantEnd(t, first, io.EOF)
	anchor(t, to, AnchorOptions{}) // there is room again
	attach(t, from, second)
}

func TestAnchorOptions(t *testing.T) {
	n := node(t, Options{Heartbeat: time.Second, Unattached: time.Minute})
	for name, c := range map[string]struct {
		o, want AnchorOptions
		shared  bool
	}{
		"the node's": {want: AnchorOptions{Heartbeat: time.Second, Unattached: time.Minute}, shared: true},
		"a value":    {o: AnchorOptions{Value: 7}, want: AnchorOptions{Heartbeat: time.Second, Unattached: time.Minute}, shared: true},
		"MPSC":       {o: AnchorOptions{MPSC: true}, want: AnchorOptions{MPSC: true, Heartbeat: time.Second}, shared: true},
		"its own":    {o: AnchorOptions{Unattached: -1}, want: AnchorOptions{Heartbeat: time.Second, Unattached: -1}},
		"MPSC's own": {o: AnchorOptions{MPSC: true, MaxSenders: 2, Unattached: time.Hour}, want: AnchorOptions{MPSC: true, MaxSenders: 2, Heartbeat: time.Second, Unattached: time.Hour}},
	} {
		a, b := anchor(t, n, c.o), anchor(t, n, c.o)
		if *a.opts != c.want || a.Value() != c.o.Value || a.Handle().MPSC() != c.o.MPSC {
			t.Errorf("%s: %+v and the value %v", name, *a.opts, a.Value())
		}
		if (a.opts == b.opts) != c.shared {
			t.Errorf("%s: two anchors share their options: %v", name, a.opts == b.opts)
		}
	}
}

// TestSlowConsumer: one that does not read stalls its own stream alone.
func TestSlowConsumer(t *testing.T) {
	producer, consumer := peers(t, Options{}, Options{Mux: mux.Options{SlotBytes: 64 << 10}})
	stuck := anchor(t, consumer, AnchorOptions{})
	s := attach(t, producer, stuck)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	sent := 0
	wg.Go(func() {
		for ; s.Send(ctx, record(nil, 0, uint64(sent), 160)) == nil; sent++ {
		}
	})
	for i := range 10 {
		a := anchor(t, consumer, AnchorOptions{})
		other := attach(t, producer, a)
		wg.Go(func() {
			send(t, other, uint64(i), 0, 1000)
			other.Finalize()
		})
		wg.Go(func() {
			receive(t, a, uint64(i), 0, 1000)
			wantEnd(t, a, io.EOF)
		})
	}
	time.Sleep(50 * time.Millisecond)
	cancel()
	wg.Wait()
	if sent != mux.DefaultWindow {
		t.Errorf("%d records were sent to who does not read, want the window of %d", sent, mux.DefaultWindow)
	}
	receive(t, stuck, 0, 0, sent)
	s.Close()
}

func TestPoller(t *testing.T) {
	const streams, records = 200, 200
	each(t, Options{}, func(t *testing.T, w how, producer, consumer *Node) {
		type progress struct {
			stream, next uint64
		}
		var ended atomic.Int64
		ctx, stop := context.WithCancel(t.Context())
		p := NewPoller(func(a *Anchor, e Event) {
			at := a.Value().(*progress)
			switch {
			case e.Kind == wire.Finalized:
				if at.next != records {
					t.Errorf("stream %d ended after %d records", at.stream, at.next)
				}
				if ended.Add(1) == streams {
					stop()
				}
			case !isRecord(e.Data, at.stream, at.next, 160):
				t.Errorf("stream %d: want record %d, got %v", at.stream, at.next, e)
			default:
				at.next++
			}
		})
		var wg sync.WaitGroup
		for i := range uint64(streams) {
			a := anchor(t, consumer, AnchorOptions{Value: &progress{stream: i}})
			p.Add(a)
			s := w.begin(t, producer, a)
			wg.Go(func() {
				send(t, s, i, 0, records)
				s.Finalize()
			})
		}
		if err := p.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		wg.Wait()
		baseline(t, producer, consumer)
	})
}

// TestPollerBlocked: a function that blocks stalls its own stream alone.
func TestPollerBlocked(t *testing.T) {
	producer, consumer := peers(t, Options{}, Options{})
	ctx, stop := context.WithCancel(t.Context())
	release, others := make(chan struct{}), make(chan struct{})
	var blocked, ended atomic.Int64
	p := NewPoller(func(a *Anchor, e Event) {
		switch {
		case a.Value() == true && e.Kind == wire.Item:
			blocked.Add(1)
			<-release
			blocked.Add(-1)
		case e.Ends():
			switch n := ended.Add(1); n {
			case 20:
				close(others)
			case 23:
				stop()
			}
		}
	})
	var wg sync.WaitGroup
	for i := range 23 {
		a := anchor(t, consumer, AnchorOptions{Value: i < 3})
		p.Add(a)
		s := attach(t, producer, a)
		wg.Go(func() {
			send(t, s, 1, 0, 100)
			s.Finalize()
		})
	}
	wg.Go(func() {
		<-others // though three are blocked
		if blocked.Load() != 3 {
			t.Errorf("%d functions block, want 3", blocked.Load())
		}
		close(release)
	})
	_ = p.Run(ctx)
	wg.Wait()
}

// TestFeeder: one goroutine feeds many senders.
func TestFeeder(t *testing.T) {
	const streams, records = 100, 300
	each(t, Options{}, func(t *testing.T, w how, producer, consumer *Node) {
		var wg sync.WaitGroup
		type progress struct{ next, stream int }
		var feeder Feeder
		at := map[*Sender]*progress{}
		var list []*Sender
		for i := range streams {
			a := anchor(t, consumer, AnchorOptions{})
			s := w.begin(t, producer, a)
			feeder.Add(s)
			at[s] = &progress{stream: i}
			list = append(list, s)
			wg.Go(func() {
				receive(t, a, uint64(i), 0, records)
				wantEnd(t, a, io.EOF)
			})
		}
		for left := streams; left > 0; {
			for _, s := range list {
				p := at[s]
				for ; p.next < records; p.next++ {
					err := s.TrySend(record(nil, uint64(p.stream), uint64(p.next), 160))
					if errors.Is(err, ErrWouldBlock) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if p.next == records {
					p.next++
					left--
					s.Finalize()
				}
			}
			if left == 0 {
				break
			}
			var err error
			if list, err = feeder.Next(t.Context(), list[:0]); err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
		baseline(t, producer, consumer)
	})
}

// TestRetired: what was sent has left, or is known not to have.
func TestRetired(t *testing.T) {
	each(t, Options{}, func(t *testing.T, w how, producer, consumer *Node) {
		a := anchor(t, consumer, AnchorOptions{})
		s := w.begin(t, producer, a)
		send(t, s, 1, 0, 20)
		if err := s.Retired(t.Context()); err == nil {
			t.Error("a stream that goes on has left")
		}
		s.Finalize()
		if err := s.Retired(t.Context()); err != nil {
			t.Error(err)
		}
		receive(t, a, 1, 0, 20)
		wantEnd(t, a, io.EOF)
		if w.local || w.key == wire.KeyTCPStream {
			return
		}
		a = anchor(t, consumer, AnchorOptions{})
		s = byTicket(t, producer, a)
		send(t, s, 1, 0, 1)
		receive(t, a, 1, 0, 1)
		consumer.Close()
		<-s.Done()
		if err := s.Retired(t.Context()); !errors.Is(err, ErrPeerLost) && !errors.Is(err, ErrCancelled) {
			t.Errorf("a stream to a peer that is gone: %v", err)
		}
	})
}

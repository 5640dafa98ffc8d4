// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// TestDraining: a node that drains begins no stream, and keeps what it has promised.
func TestDraining(t *testing.T) {
	drains, other := peers(t, Options{}, Options{})
	free, out, there := anchor(t, drains, AnchorOptions{}), anchor(t, drains, AnchorOptions{}), anchor(t, other, AnchorOptions{})
	given, err := out.Ticket(0)
	if err != nil {
		t.Fatal(err)
	}
	mine := anchor(t, drains, AnchorOptions{})
	own, err := mine.Ticket(0)
	if err != nil {
		t.Fatal(err)
	}
	ready := anchor(t, other, AnchorOptions{})
	ticket, err := ready.Ticket(0)
	if err != nil {
		t.Fatal(err)
	}
	live := anchor(t, other, AnchorOptions{})
	s := attach(t, drains, live)

	done := drain(t, drains)
	for name, c := range map[string]struct {
		begin func() error
		want  []error
	}{
		"new anchor":           {func() error { _, err := drains.NewAnchor(AnchorOptions{}); return err }, []error{ErrDraining}},
		"new MPSC anchor":      {func() error { _, err := drains.NewAnchor(AnchorOptions{MPSC: true}); return err }, []error{ErrDraining}},
		"new ticket":           {func() error { _, err := free.Ticket(0); return err }, []error{ErrDraining}},
		"attach to itself":     {func() error { _, err := drains.Attach(t.Context(), free.Handle()); return err }, []error{ErrDraining}},
		"attach to another":    {func() error { _, err := drains.Attach(t.Context(), there.Handle()); return err }, []error{ErrDraining}},
		"open on itself":       {func() error { _, err := drains.Open(mine.Handle(), own); return err }, []error{ErrDraining}},
		"open on another":      {func() error { _, err := drains.Open(ready.Handle(), ticket); return err }, []error{ErrDraining}},
		"attach of another":    {func() error { _, err := other.Attach(t.Context(), free.Handle()); return err }, []error{ErrRefused, messenger.ErrShuttingDown}},
		"anchor of another":    {func() error { a, err := other.NewAnchor(AnchorOptions{}); return errors.Join(err, a.Close()) }, []error{nil}},
		"ticket that is given": {func() error { return whole(t, other, out, given) }, []error{nil}},
	} {
		err := c.begin()
		for _, want := range c.want {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", name, err, want)
			}
		}
	}

	send(t, s, 1, 0, 20)
	if err := s.Finalize(); err != nil {
		t.Error(err)
	}
	receive(t, live, 1, 0, 20)
	wantEnd(t, live, io.EOF)
	wantEnd(t, free, ErrUnattached)
	select {
	case err := <-done:
		t.Errorf("it says that it is drained, with a ticket out: %v", err)
	default:
	}
	mine.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	baseline(t, drains)
	drains.Close()
	if _, err := drains.NewAnchor(AnchorOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("a new anchor of a closed node: %v", err)
	}
}

// drain begins to drain n; what comes is what Drain returns.
func drain(t *testing.T, n *Node) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- n.Drain(t.Context()) }()
	for n.refuses() == nil {
		time.Sleep(time.Millisecond)
	}
	return done
}

// TestDrainFree: an anchor to which nobody can come any more ends, and holds up no drain.
func TestDrainFree(t *testing.T) {
	recv := func(t *testing.T, a *Anchor, want ...error) {
		for _, err := range want {
			wantEnd(t, a, err)
		}
		wantEnd(t, a, want[len(want)-1]) // for good
	}
	events := func(t *testing.T, a *Anchor, want ...error) {
		for i := range want {
			if e, err := a.RecvEvent(t.Context()); err != nil || !errors.Is(e.Error(), want[i]) {
				t.Errorf("event %d is %v (%v), want %v", i, e.Error(), err, want[i])
			}
		}
		wantEnd(t, a, want[len(want)-1])
	}
	polled := func(t *testing.T, a *Anchor, want ...error) {
		told := make(chan error, 10)
		p := NewPoller(func(_ *Anchor, e Event) { told <- e.Error() })
		p.Add(a)
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- p.Run(ctx) }()
		for i := range want {
			if err := <-told; !errors.Is(err, want[i]) {
				t.Errorf("event %d is %v, want %v", i, err, want[i])
			}
		}
		stop()
		<-ran
		if len(told) > 0 {
			t.Errorf("after the end: %v", <-told)
		}
	}
	for _, c := range []struct {
		name   string
		o      AnchorOptions
		sender func(*Sender) error // what it does while the node drains; nil: there is none
		read   func(*testing.T, *Anchor, ...error)
		want   []error
	}{
		{name: "free", read: recv, want: []error{ErrUnattached}},
		{name: "free, polled", read: polled, want: []error{ErrUnattached}},
		{name: "free, waits for ever", o: AnchorOptions{Unattached: -1}, read: recv, want: []error{ErrUnattached}},
		{name: "of many", o: AnchorOptions{MPSC: true}, read: events, want: []error{ErrUnattached}},
		{name: "detached", sender: (*Sender).Detach, read: recv, want: []error{ErrDetached, ErrUnattached}},
		{name: "detached, polled", sender: (*Sender).Detach, read: polled, want: []error{ErrDetached, ErrUnattached}},
		{name: "detached from many", o: AnchorOptions{MPSC: true}, sender: (*Sender).Detach, read: events, want: []error{ErrDetached, ErrUnattached}},
		{name: "detached from many, polled", o: AnchorOptions{MPSC: true}, sender: (*Sender).Detach, read: polled, want: []error{ErrDetached, ErrUnattached}},
		{name: "last of many", o: AnchorOptions{MPSC: true}, sender: (*Sender).Finalize, read: events, want: []error{io.EOF, ErrUnattached}},
		{name: "complete", sender: (*Sender).Finalize, read: recv, want: []error{io.EOF}},
	} {
		t.Run(c.name, func(t *testing.T) {
			drains, other := peers(t, Options{}, Options{})
			a, err := drains.NewAnchor(c.o)
			if err != nil {
				t.Fatal(err)
			}
			var s *Sender
			if c.sender != nil {
				s = attach(t, other, a)
			}
			done := drain(t, drains)
			if s != nil {
				if err := c.sender(s); err != nil {
					t.Error(err)
				}
			}
			c.read(t, a, c.want...)
			if err := <-done; err != nil {
				t.Error(err)
			}
			baseline(t, drains)
		})
	}
}

// TestDrainUnread: the anchor's consumer need not read, or be there at all.
func TestDrainUnread(t *testing.T) {
	n := node(t, Options{})
	for _, o := range []AnchorOptions{{}, {MPSC: true}} {
		if _, err := n.NewAnchor(o); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Drain(t.Context()); err != nil {
		t.Error(err)
	}
}

// whole is a stream from begin to end.
func whole(t *testing.T, from *Node, a *Anchor, ticket *wire.Ticket) error {
	s, err := from.Open(a.Handle(), ticket)
	if err != nil {
		return err
	}
	send(t, s, 2, 0, 5)
	receive(t, a, 2, 0, 5)
	err = s.Finalize()
	wantEnd(t, a, io.EOF)
	return err
}

// TestCloseLocal: the senders of a node's own streams see it close, and wake up.
func TestCloseLocal(t *testing.T) {
	for name, o := range map[string]AnchorOptions{"one sender": {}, "many": {MPSC: true}} {
		t.Run(name, func(t *testing.T) {
			n := node(t, Options{})
			a := anchor(t, n, o)
			wantLast(t, attach(t, n, a), func() { n.Close() }, ErrClosed)
		})
	}
}

// TestInjected: a consumer that is told of the end by message tells a sender of its own
// node, which would wait for credit for ever.
func TestInjected(t *testing.T) {
	n := node(t, Options{})
	a := anchor(t, n, AnchorOptions{})
	s := attach(t, n, a)
	wantLast(t, s, func() { a.inject(wire.FrameFinalized) }, ErrCancelled)
	s.Close()
	for {
		if _, err := a.Recv(t.Context()); err != nil {
			if err != io.EOF {
				t.Errorf("the stream ends with %v", err)
			}
			break
		}
	}
	baseline(t, n)
}

// wantLast sends until end, which has the sender fail with want.
func wantLast(t *testing.T, s *Sender, end func(), want error) {
	t.Helper()
	full, failed := make(chan struct{}), make(chan error)
	go func() {
		for s.TrySend(nil) == nil {
		}
		close(full)
		failed <- s.Send(context.Background(), nil)
	}()
	<-full
	end()
	if err := <-failed; !errors.Is(err, want) {
		t.Errorf("a sender that waited ends with %v, want %v", err, want)
	}
	<-s.Done()
	if err := s.Err(); !errors.Is(err, want) {
		t.Errorf("the sender says %v, want %v", err, want)
	}
}

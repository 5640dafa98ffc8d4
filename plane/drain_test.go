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

	done := make(chan error, 1)
	go func() { done <- drains.Drain(t.Context()) }()
	for drains.refuses() == nil {
		time.Sleep(time.Millisecond)
	}
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
	select {
	case err := <-done:
		t.Errorf("it says that it is drained, with two anchors left: %v", err)
	default:
	}
	free.Close()
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

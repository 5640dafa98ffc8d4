// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// put pushes as a connection's reader does.
func put(b *Inbox, tag uint32, frame []byte) bool {
	told, ok := b.push(tag, frame)
	told.tell()
	return ok
}

// counts are numbers as frames.
func number(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }

// TestInboxWaits moves numbers through an inbox whose consumer sleeps again and again,
// sometimes because its context ends.
func TestInboxWaits(t *testing.T) {
	const n = 20_000
	var b Inbox
	go func() {
		for i := range n {
			put(&b, 0, number(i))
			if i%7 == 0 {
				runtime.Gosched()
			}
		}
	}()
	var f Frames
	short := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(t.Context(), 20*time.Microsecond)
	}
	long, stop := context.WithCancel(context.Background())
	defer stop()
	for i, waits := 0, 0; i < n; {
		ctx, stop := long, context.CancelFunc(func() {})
		switch waits++; waits % 8 {
		case 1:
			ctx, stop = short()
		case 3:
			ctx = context.Background()
		}
		if err := b.Await(ctx, &f); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		stop()
		for f.N > 0 {
			frame, _, _ := f.Next()
			if got := int(binary.BigEndian.Uint32(frame)); got != i {
				t.Fatalf("%d comes where %d should", got, i)
			}
			i++
		}
	}
}

// TestAwait ends the context of who waits, for the first time and later.
func TestAwait(t *testing.T) {
	var b Inbox
	var f Frames
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	const before = fewWaits + 2
	for i := range before + 2 {
		if i == before {
			time.AfterFunc(time.Millisecond, stop)
		} else if i < before {
			time.AfterFunc(time.Millisecond, func() { put(&b, 0, number(i)) })
		}
		err := b.Await(ctx, &f)
		if i < before {
			must(t, err)
			f.Next()
			continue
		}
		wants(t, "waiting", err, context.Canceled)
	}
	put(&b, 0, number(9))
	must(t, b.Await(ctx, &f)) // what is there comes first
	f.Next()
	must(t, func() error {
		time.AfterFunc(time.Millisecond, func() { put(&b, 0, number(9)) })
		return b.Await(t.Context(), &f)
	}())
	b.Close()
	f.Next()
	wants(t, "a closed inbox", b.Await(t.Context(), &f), ErrClosed)
}

func TestInboxCloses(t *testing.T) {
	for _, ctx := range []context.Context{context.Background(), t.Context()} {
		var b Inbox
		var f Frames
		done := make(chan error)
		for range fewWaits + 2 { // the first and the later times differ
			go func() { done <- b.Await(ctx, &f) }()
			put(&b, 0, number(1))
			must(t, <-done)
			f.Next()
		}
		go func() { done <- b.Await(ctx, &f) }()
		time.Sleep(time.Millisecond)
		b.Close()
		wants(t, "its end", <-done, ErrClosed)
		if put(&b, 0, number(1)) || b.Take(&f) {
			t.Error("a closed inbox takes frames")
		}
		b.Close()
	}
}

// TestTags has sources come and go while their frames are read.
func TestTags(t *testing.T) {
	m, l := drains(t, Options{Window: 8})
	box := &Inbox{}
	join := func(session uint64) *Bind {
		b := &Bind{Anchor: 1, Session: session, Inbox: box, Source: session}
		m.Bind(b)
		return b
	}
	open := func(session uint64) wire.Record {
		r := opens(slot(int(session), 0), session)
		binary.BigEndian.PutUint64(r.Body, 1)
		return r
	}
	one := join(1)
	join(2)
	m.Batch(producer, batched(1, 0, open(1), item(slot(1, 0), 1, "a"), open(2), item(slot(2, 0), 1, "b")))
	m.Cancel(one)
	join(3)
	m.Batch(producer, batched(1, 1, open(3), item(slot(3, 0), 1, "c")))
	var f Frames
	read := func(want string, source uint64) {
		t.Helper()
		frame, tag, ok := f.Next()
		if !ok || show(frame) != want || box.Source(tag) != source {
			t.Errorf("%q of %v comes, want %q of %d", show(frame), box.Source(tag), want, source)
		}
		drained(box, &Frames{}, tag, 1, len(frame))
	}
	box.Take(&f)
	join(4) // while frames of the first are still read
	m.Batch(producer, batched(1, 2, open(4), item(slot(4, 0), 1, "d")))
	read("a", 1)
	read("b", 2)
	read("c", 3)
	box.Take(&f)
	read("d", 4)
	if s := l.all(t); s != "cancel:1.0 credit:2.0:1 credit:3.0:1 credit:4.0:1" {
		t.Errorf("told %q", s)
	}
	join(5)
	m.Batch(producer, batched(1, 3, open(5), item(slot(5, 0), 1, "e")))
	if n := len(box.others.list); box.first == nil || n != 3 {
		t.Errorf("%d tags for 4 sources", 1+n)
	}
	box.Take(&f)
	read("e", 5)
}

// TestLocal is a stream that needs no wire.
func TestLocal(t *testing.T) {
	m, _ := solo(t, Options{Window: 2})
	box := &Inbox{}
	rooms, ends, stops := 0, 0, 0
	l := m.NewLocal(box, "here", Hooks{Room: func() { rooms++ }, End: func(error) { ends++ }, Stop: func() { stops++ }})
	must(t, l.Item([]byte("a")))
	must(t, l.Item([]byte("b")))
	wants(t, "without credit", l.Item([]byte("c")), ErrWouldBlock)
	ctx, stop := context.WithTimeout(t.Context(), time.Millisecond)
	wants(t, "waiting", l.Wait(ctx), context.DeadlineExceeded)
	stop()
	if s := got(box, true); s != "a b" || rooms != 1 || box.Source(l.tag) != "here" {
		t.Errorf("saw %q, told %d times", s, rooms)
	}
	must(t, l.Wait(t.Context()))
	must(t, l.Item([]byte("c")))
	l.Stop()
	l.End(ErrCancelled)
	l.End(ErrCancelled)
	wants(t, "then", l.Item(nil), ErrCancelled)
	wants(t, "its end", l.Finish(wire.FrameFinalized), ErrCancelled)
	if s := got(box, false); s != "c" || ends != 1 || stops != 1 {
		t.Errorf("saw %q, %d ends and %d stops", s, ends, stops)
	}
	l = m.NewLocal(box, nil, Hooks{})
	if box.first == nil || len(box.others.list) > 0 {
		t.Errorf("%d tags for one source", 1+len(box.others.list))
	}
	must(t, l.Finish(wire.FrameFinalized))
	wants(t, "then", l.Finish(wire.FrameFinalized), ErrEnded)
	box.Close()
	wants(t, "into a closed inbox", m.NewLocal(box, nil, Hooks{}).Item(nil), ErrCancelled)
}

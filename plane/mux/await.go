// SPDX-License-Identifier: Apache-2.0

package mux

import "context"

// waiter is how a goroutine waits for an inbox.
type waiter struct {
	wake chan struct{}
	// The context that it waited with last, and how often. After fewWaits the inbox is told of
	// its end: a select would lock, again and again, what all consumers share.
	done  <-chan struct{}
	times int
	stop  func() bool // nil: a select watched it
}

const fewWaits = 8

// caller is who is to be told that an inbox has something: a poller, or without one the
// goroutine that waits. Without an inbox it is nobody.
type caller struct {
	b *Inbox
	p *Poller
}

func (c caller) tell() {
	switch {
	case c.p != nil:
		c.p.look(c.b)
	case c.b != nil:
		c.b.waits.wake <- struct{}{} // it has room for the one who waits
	}
}

// Await is Take that waits until there is something. ErrClosed: the inbox was closed, and
// nothing comes any more; or ctx's error.
func (b *Inbox) Await(ctx context.Context, f *Frames) error {
	b.mu.Lock()
	for b.n == 0 {
		if b.closed.Load() {
			b.mu.Unlock()
			return ErrClosed
		}
		if b.waits == nil {
			b.waits = &waiter{wake: make(chan struct{}, 1)}
		}
		b.parked = true
		err := b.park(ctx)
		b.mu.Lock()
		if err != nil {
			if !b.parked {
				<-b.waits.wake // it was told meanwhile
			}
			b.parked = false
			b.mu.Unlock()
			return err
		}
	}
	b.take(f)
	b.mu.Unlock()
	return nil
}

// park waits to be told, or for ctx. The lock is held, and given back.
func (b *Inbox) park(ctx context.Context) error {
	w, done := b.waits, ctx.Done()
	switch {
	case done == nil:
		b.mu.Unlock()
		<-w.wake
		return nil
	case w.done != done || w.times < fewWaits:
		if w.done != done {
			w.forget()
			w.done = done
		}
		w.times++
		b.mu.Unlock()
		select {
		case <-w.wake:
			return nil
		case <-done:
			return ctx.Err()
		}
	case w.stop == nil:
		w.stop = context.AfterFunc(ctx, b.unpark)
	}
	b.mu.Unlock()
	if err := ctx.Err(); err != nil { // unpark may have come too early
		return err
	}
	<-w.wake
	return nil // if it was for ctx, that shows when it parks again
}

// unpark has who waits look at its context.
func (b *Inbox) unpark() {
	b.mu.Lock()
	told := b.unparked()
	b.mu.Unlock()
	told.tell()
}

// unparked says whether somebody waits, who is to be told. The lock is held.
func (b *Inbox) unparked() (told caller) {
	if b.parked {
		b.parked = false
		return caller{b, nil}
	}
	return caller{}
}

// tellAll tells whoever is to be told, a poller once.
func tellAll(list []caller, inboxes []*Inbox) []*Inbox {
	for i, c := range list {
		if c.p == nil {
			c.tell()
			continue
		}
		if inboxes = append(inboxes, c.b); i+1 == len(list) || list[i+1].p != c.p {
			c.p.look(inboxes...)
			clear(inboxes)
			inboxes = inboxes[:0]
		}
	}
	return inboxes
}

// Unwatch forgets the context that the consumer waited with: its stream has ended.
func (b *Inbox) Unwatch() {
	b.mu.Lock()
	if b.waits != nil {
		b.waits.forget()
	}
	b.mu.Unlock()
}

// forget has the waiter know no context.
func (w *waiter) forget() {
	if w.stop != nil {
		w.stop()
	}
	w.done, w.times, w.stop = nil, 0, nil
}

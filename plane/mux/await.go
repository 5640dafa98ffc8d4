// SPDX-License-Identifier: Apache-2.0

package mux

import "context"

// waiter is how a goroutine waits for an inbox: one line of the processor's cache.
type waiter struct {
	wake chan struct{}
	// The context that it waited with last, and how often. After fewWaits it is watched.
	done    <-chan struct{}
	times   uint32
	watched bool

	// Its place in the watch. Guarded by the lock of watches.
	in            *watch // nil: in none
	inbox         *Inbox
	before, after *waiter
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
		if w := b.waits; w.times == fewWaits && !w.watched && w.done == ctx.Done() {
			w.watched = true
			w.watch(ctx, b) // here, as it goes deep
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
	case w.done != done:
		if stop := w.forget(); stop != nil {
			stop()
		}
		w.done = done
		fallthrough
	case w.times < fewWaits:
		w.times++
		b.mu.Unlock()
		select {
		case <-w.wake:
			return nil
		case <-done:
			return ctx.Err()
		}
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

// Unwatch forgets the context that the consumer waited with: its stream has ended. Unless
// stop is nil the caller is to call it, which takes half of the stack that a goroutine
// begins with.
func (b *Inbox) Unwatch() (stop func() bool) {
	b.mu.Lock()
	if b.waits != nil {
		stop = b.waits.forget()
	}
	b.mu.Unlock()
	return stop
}

// forget has the waiter know no context. stop: see Inbox.Unwatch.
func (w *waiter) forget() (stop func() bool) {
	if w.watched {
		stop = w.unwatch()
	}
	w.done, w.times, w.watched = nil, 0, false
	return stop
}

// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
	"errors"
	"sync"
)

// Local is a producer on the consumer's own node: it puts frames straight into the
// inbox, within a window as on the wire. Like an Owner it is one goroutine's at a time.
type Local struct {
	inbox *Inbox
	tag   uint32
	hooks Producer
	from  any

	mu     sync.Mutex
	credit int
	err    error
	room   Room
}

// NewLocal begins a stream into inbox with the credit of the mux. from is what
// Inbox.Source answers.
func (m *Mux) NewLocal(inbox *Inbox, from any, h Producer) *Local {
	l := &Local{inbox: inbox, hooks: h, from: from, credit: int(m.opts.Window)}
	l.tag = inbox.add(l)
	return l
}

func (l *Local) source() any { return l.from }

// drained implements drainer.
func (l *Local) drained(records, _ int) {
	l.mu.Lock()
	l.credit += records
	tell := l.room.Again()
	l.mu.Unlock()
	if tell {
		l.hooks.OnRoom()
	}
}

// Item puts b as an item of msgpack bin, as Owner.Item does.
func (l *Local) Item(b []byte) error {
	l.mu.Lock()
	if err := l.spend(); err != nil {
		l.mu.Unlock()
		return err
	}
	return l.put(l.inbox.pushItem(l.tag, b))
}

// Frame puts a whole stream frame that is no terminal.
func (l *Local) Frame(frame []byte) error {
	l.mu.Lock()
	if err := l.spend(); err != nil {
		l.mu.Unlock()
		return err
	}
	return l.put(l.inbox.push(l.tag, frame))
}

// spend takes one credit. The lock is held.
func (l *Local) spend() error {
	switch {
	case l.err != nil:
		return l.err
	case l.credit == 0:
		l.room.Refuse()
		return ErrWouldBlock
	}
	l.credit--
	return nil
}

// put gives back the lock, under which a frame was pushed so that none comes after End.
func (l *Local) put(told caller, ok bool) error {
	l.mu.Unlock()
	if !ok {
		l.End(ErrCancelled)
		return ErrCancelled
	}
	told.tell()
	return nil
}

// Finish puts the terminal and ends the stream.
func (l *Local) Finish(terminal []byte) error {
	l.mu.Lock()
	if l.err != nil {
		defer l.mu.Unlock()
		return l.err
	}
	l.err = ErrEnded
	return l.put(l.inbox.push(l.tag, terminal))
}

// Wait is Owner.Wait.
func (l *Local) Wait(ctx context.Context) error { return l.room.Wait(ctx, &l.mu) }

// Retired is Owner.Retired: what was put into the inbox has arrived.
func (l *Local) Retired(context.Context) error {
	switch err := l.Err(); {
	case err == nil:
		return ErrNotEnded
	case errors.Is(err, ErrEnded):
		return nil
	default:
		return err
	}
}

// Err says why nothing can be sent any more, or nil.
func (l *Local) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// End ends the stream from the consumer's side: the producer is told once.
func (l *Local) End(err error) {
	l.mu.Lock()
	if l.err != nil {
		l.mu.Unlock()
		return
	}
	l.err = err
	l.inbox.leave(l.tag)
	l.room.Again()
	l.mu.Unlock()
	l.hooks.OnEnd(err)
}

// Cancelled is Owner.Cancelled.
func (l *Local) Cancelled() { l.End(ErrCancelled) }

// Stop asks the producer to finish.
func (l *Local) Stop() {
	l.hooks.OnStop()
}

// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
	"sync"
)

// watch tells all inboxes whose consumers wait with one context that it has ended. Thousands
// often share one: to select on it with each record they would all lock its channel, and
// context.AfterFunc for each would fill a map of its.
type watch struct {
	done   <-chan struct{}
	stop   func() bool // that it is told of the end of the context
	inside int
	first  *waiter
}

// watches are those of all contexts. The lock guards them and what waiters say of theirs;
// it may be taken with that of an inbox held, and not the other way round.
var watches = struct {
	sync.Mutex
	of map[<-chan struct{}]*watch
}{of: map[<-chan struct{}]*watch{}}

// watch has b's consumer told when ctx ends.
func (w *waiter) watch(ctx context.Context, b *Inbox) {
	watches.Lock()
	x := watches.of[w.done]
	if x == nil {
		x = &watch{done: w.done}
		x.stop = context.AfterFunc(ctx, x.ended)
		watches.of[w.done] = x
	}
	x.inside++
	w.in, w.inbox, w.before, w.after = x, b, nil, x.first
	if x.first != nil {
		x.first.before = w
	}
	x.first = w
	watches.Unlock()
}

// unwatch undoes watch. stop: see Inbox.Unwatch.
func (w *waiter) unwatch() (stop func() bool) {
	watches.Lock()
	defer watches.Unlock()
	x := w.in
	if x == nil { // the context has ended meanwhile
		return nil
	}
	if w.before != nil {
		w.before.after = w.after
	} else {
		x.first = w.after
	}
	if w.after != nil {
		w.after.before = w.before
	}
	w.in, w.before, w.after = nil, nil, nil
	if x.inside--; x.inside > 0 {
		return nil
	}
	delete(watches.of, x.done)
	return x.stop
}

// ended runs when the context has ended, on a goroutine of its own.
func (x *watch) ended() {
	watches.Lock()
	if watches.of[x.done] == x {
		delete(watches.of, x.done)
	}
	list := make([]*Inbox, 0, x.inside)
	for w := x.first; w != nil; {
		list = append(list, w.inbox)
		next := w.after
		w.in, w.before, w.after = nil, nil, nil
		w = next
	}
	x.first, x.inside = nil, 0
	watches.Unlock()
	for _, b := range list {
		b.unpark()
	}
}

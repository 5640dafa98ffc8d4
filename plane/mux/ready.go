// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
	"sync"
)

// Ready is how many hand over what is ready to one goroutine that waits for it. The zero
// value is ready to be used.
type Ready[T any] struct {
	mu     sync.Mutex
	list   []T
	parked bool // the one waits, and was not told
	wake   chan struct{}
}

// Add hands over v. It never waits.
func (r *Ready[T]) Add(v T) {
	r.mu.Lock()
	r.list = append(r.list, v)
	r.unlock()
}

// unlock gives back the lock and wakes who waits.
func (r *Ready[T]) unlock() {
	wake := r.parked
	r.parked = false
	r.mu.Unlock()
	if wake {
		select {
		case r.wake <- struct{}{}:
		default: // it was told before, and gave up waiting
		}
	}
}

// Take appends to list what was handed over.
func (r *Ready[T]) Take(list []T) []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.take(list)
}

// take is Take with the lock held.
func (r *Ready[T]) take(list []T) []T {
	list = append(list, r.list...)
	clear(r.list)
	r.list = r.list[:0]
	return list
}

// Await is Take that waits until there is something, or returns ctx's error.
func (r *Ready[T]) Await(ctx context.Context, list []T) ([]T, error) {
	for {
		r.mu.Lock()
		if len(r.list) > 0 {
			list = r.take(list)
			r.mu.Unlock()
			return list, nil
		}
		if r.wake == nil {
			r.wake = make(chan struct{}, 1)
		}
		r.parked = true
		r.mu.Unlock()
		select {
		case <-r.wake:
		case <-ctx.Done():
			return list, ctx.Err()
		}
	}
}

// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
	"sync"
)

// Room is how a sender that was refused with ErrWouldBlock learns that it may try again.
// It is guarded by a lock of whoever has it. The zero value is ready.
type Room struct {
	wants bool
	wake  chan struct{} // nil: nobody has waited yet
}

// Refuse notes that somebody was refused.
func (r *Room) Refuse() { r.wants = true }

// Again tells who was refused, and reports whether somebody was.
func (r *Room) Again() bool {
	if !r.wants {
		return false
	}
	r.wants = false
	if r.wake != nil {
		select {
		case r.wake <- struct{}{}:
		default: // it was told already and has not looked
		}
	}
	return true
}

// Wait waits for Again, if there was a Refuse since the last. mu is the lock, not held.
func (r *Room) Wait(ctx context.Context, mu *sync.Mutex) error {
	mu.Lock()
	if !r.wants {
		mu.Unlock()
		return nil
	}
	if r.wake == nil {
		r.wake = make(chan struct{}, 1)
	}
	wake := r.wake
	mu.Unlock()
	select {
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

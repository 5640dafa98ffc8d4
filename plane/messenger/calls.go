// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// maxCalls is how many calls may wait at once: a slot has 16 bits.
const maxCalls = math.MaxUint16

// answer is what a call waits for.
type answer struct {
	body []byte
	err  error
}

// call waits in a slot. Whoever takes it out of the table completes it, once.
type call struct {
	line       *line // on which it was sent
	generation uint64
	done       chan answer  // has room for the answer
	then       func(answer) // in place of done; must not block
}

func (c *call) complete(a answer) {
	if c.then != nil {
		c.then(a)
	} else {
		c.done <- a
	}
}

// calls is the table of those that wait. A generation is random, so that a peer cannot
// answer for another one by counting.
type calls struct {
	self wire.WorkerID
	m    *Metrics

	mu    sync.Mutex
	slots []*call
	free  []uint16
}

func (t *calls) begin(c *call) (wire.ResponseID, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var slot uint16
	switch n := len(t.free); {
	case n > 0:
		slot, t.free = t.free[n-1], t.free[:n-1]
	case len(t.slots) < maxCalls:
		slot = uint16(len(t.slots))
		t.slots = append(t.slots, nil)
	default:
		t.m.exhausted.Inc()
		return wire.ResponseID{}, fmt.Errorf("beginning a call: %w: %d wait for an answer", ErrTooMany, maxCalls)
	}
	c.generation = rand.Uint64() & (1<<48 - 1)
	t.slots[slot] = c
	t.m.pending.Inc()
	return wire.NewResponseID(t.self, slot, c.generation), nil
}

// take takes the call out, if it is still that one and may is content with who it was
// sent to.
func (t *calls) take(id wire.ResponseID, may func(*call) bool) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := id.Slot()
	if id.Worker() != t.self || int(slot) >= len(t.slots) {
		return nil
	}
	c := t.slots[slot]
	if c == nil || c.generation != id.Generation() || may != nil && !may(c) {
		return nil
	}
	t.release(slot)
	return c
}

func (t *calls) release(slot uint16) {
	t.slots[slot] = nil
	t.free = append(t.free, slot)
	t.m.pending.Dec()
}

// lost completes every call that was sent on the line.
func (t *calls) lost(l *line, err error) {
	t.mu.Lock()
	var ended []*call
	for slot, c := range t.slots {
		if c != nil && c.line == l {
			t.release(uint16(slot))
			ended = append(ended, c)
		}
	}
	t.mu.Unlock()
	for _, c := range ended {
		c.complete(answer{err: err})
	}
}

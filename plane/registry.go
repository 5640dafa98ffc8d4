// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// parts is how many locks a table has, so that many streams may begin and end at once.
const parts = 16

// table finds what a peer names by a number.
type table[T any] struct {
	last atomic.Uint64
	size atomic.Int64
	part [parts]struct {
		mu sync.Mutex
		m  map[uint64]*T
		_  [48]byte // a cache line each
	}
}

// next counts from 1.
func (t *table[T]) next() uint64 { return t.last.Add(1) }

// secret is a number for anchors and sessions, never 0 and without wire.MPSCBit. Whoever
// knows it may begin or end a stream, so it must not be found by counting.
func secret() uint64 { return rand.Uint64N(1<<63-1) + 1 }

func (t *table[T]) add(id uint64, v *T) {
	p := &t.part[id%parts]
	p.mu.Lock()
	if p.m == nil {
		p.m = map[uint64]*T{}
	}
	p.m[id] = v
	p.mu.Unlock()
	t.size.Add(1)
}

func (t *table[T]) get(id uint64) *T {
	p := &t.part[id%parts]
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.m[id]
}

// remove reports whether it was there.
func (t *table[T]) remove(id uint64) bool {
	p := &t.part[id%parts]
	p.mu.Lock()
	_, there := p.m[id]
	delete(p.m, id)
	p.mu.Unlock()
	if there {
		t.size.Add(-1)
	}
	return there
}

// all lists what is in the table now.
func (t *table[T]) all() (list []*T) {
	for i := range t.part {
		p := &t.part[i]
		p.mu.Lock()
		for _, v := range p.m {
			list = append(list, v)
		}
		p.mu.Unlock()
	}
	return list
}

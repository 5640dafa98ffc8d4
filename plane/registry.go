// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"sync"
	"sync/atomic"
)

// parts is how many locks a table has, so that many streams may begin and end at once.
const parts = 16

// table finds what a peer names by a number. Numbers count from 1 and are never used
// again.
type table[T any] struct {
	last atomic.Uint64
	size atomic.Int64
	part [parts]struct {
		mu sync.Mutex
		m  map[uint64]*T
		_  [48]byte // a cache line each
	}
}

func (t *table[T]) next() uint64 { return t.last.Add(1) }

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

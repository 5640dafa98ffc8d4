// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"math/bits"
	"sync"
)

// Buffers come from a few lists by size. What is beyond smallBuffer goes back as soon as
// it is drained, so that a stream at rest holds little. The lists are no sync.Pool:
// each collection would empty it, and the next records would allocate.
const (
	smallBuffer = 512
	// mostSpare bounds the bytes that a list keeps.
	mostSpare = 8 << 20
)

var sizes = [...]int{256, 512, 1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10}

// spares are free buffers of one size.
type spares struct {
	mu   sync.Mutex
	list [][]byte
	_    [32]byte // each on a cache line of its own
}

var lists [len(sizes)]spares

// newBuffer returns an empty buffer of at least n bytes.
func newBuffer(n int) []byte {
	for i, size := range sizes {
		if n <= size {
			if b := lists[i].take(); b != nil {
				return b
			}
			return make([]byte, 0, size)
		}
	}
	return make([]byte, 0, 1<<bits.Len(uint(n-1))) // it grows by doubling
}

// freeBuffer gives b back. Its owner must not use it any more.
func freeBuffer(b []byte) {
	for i, size := range sizes {
		if cap(b) == size {
			lists[i].give(b[:0], mostSpare/size)
			return
		}
	}
}

func (l *spares) take() (b []byte) {
	l.mu.Lock()
	if last := len(l.list) - 1; last >= 0 {
		b, l.list[last] = l.list[last], nil
		l.list = l.list[:last]
	}
	l.mu.Unlock()
	return b
}

func (l *spares) give(b []byte, most int) {
	l.mu.Lock()
	if len(l.list) < most {
		l.list = append(l.list, b)
	}
	l.mu.Unlock()
}

// forgetSpares lets half of each list go.
func forgetSpares() {
	for i := range lists {
		l := &lists[i]
		l.mu.Lock()
		keep := len(l.list) / 2
		clear(l.list[keep:])
		l.list = l.list[:keep]
		l.mu.Unlock()
	}
}

// grow returns a buffer with b's bytes and room for n more. b goes back.
func grow(b []byte, n int) []byte {
	out := append(newBuffer(len(b)+n), b...)
	freeBuffer(b)
	return out
}

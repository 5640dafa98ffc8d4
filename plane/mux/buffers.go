// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"math/bits"
	"sync"
)

// Slot buffers beyond smallBuffer come from pools of a few sizes and go back as soon as
// they are drained, so that a stream at rest holds little.
const (
	smallBuffer = 512
	class0      = 1 << 10
	class1      = 4 << 10
	class2      = 16 << 10
	class3      = 64 << 10
)

var pools [4]sync.Pool

// newBuffer returns an empty buffer of at least n bytes.
func newBuffer(n int) []byte {
	switch {
	case n <= smallBuffer/2:
		return make([]byte, 0, smallBuffer/2)
	case n <= smallBuffer:
		return make([]byte, 0, smallBuffer)
	case n <= class0:
		if b, ok := pools[0].Get().(*[class0]byte); ok {
			return b[:0]
		}
		return make([]byte, 0, class0)
	case n <= class1:
		if b, ok := pools[1].Get().(*[class1]byte); ok {
			return b[:0]
		}
		return make([]byte, 0, class1)
	case n <= class2:
		if b, ok := pools[2].Get().(*[class2]byte); ok {
			return b[:0]
		}
		return make([]byte, 0, class2)
	case n <= class3:
		if b, ok := pools[3].Get().(*[class3]byte); ok {
			return b[:0]
		}
		return make([]byte, 0, class3)
	}
	return make([]byte, 0, 1<<bits.Len(uint(n-1))) // it grows by doubling
}

// freeBuffer gives b back. Its owner must not use it any more.
func freeBuffer(b []byte) {
	switch cap(b) {
	case class0:
		pools[0].Put((*[class0]byte)(b[:class0]))
	case class1:
		pools[1].Put((*[class1]byte)(b[:class1]))
	case class2:
		pools[2].Put((*[class2]byte)(b[:class2]))
	case class3:
		pools[3].Put((*[class3]byte)(b[:class3]))
	}
}

// grow returns a buffer with b's bytes and room for n more. b goes back.
func grow(b []byte, n int) []byte {
	out := append(newBuffer(len(b)+n), b...)
	freeBuffer(b)
	return out
}

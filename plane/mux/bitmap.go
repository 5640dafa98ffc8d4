// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"math/bits"
	"sync/atomic"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// dirtySet names the slots of a peer that were drained since it was last walked. Adding
// takes no lock; the bits of which words are set stand in top.
type dirtySet struct {
	words [wire.MaxIndex / 64]atomic.Uint64
	top   [wire.MaxIndex / 64 / 64]atomic.Uint64
}

func (d *dirtySet) add(index uint32) {
	word, bit := index/64, uint64(1)<<(index%64)
	if d.words[word].Load()&bit != 0 || d.words[word].Or(bit)&bit != 0 {
		return
	}
	d.top[word/64].Or(1 << (word % 64))
}

// empty may miss what is just being added; who adds asks for a visit afterwards.
func (d *dirtySet) empty() bool {
	for i := range d.top {
		if d.top[i].Load() != 0 {
			return false
		}
	}
	return true
}

// walk empties the set and hands each member to f.
func (d *dirtySet) walk(f func(index uint32)) {
	for i := range d.top {
		for t := d.top[i].Swap(0); t != 0; t &= t - 1 {
			word := uint32(i*64 + bits.TrailingZeros64(t))
			for w := d.words[word].Swap(0); w != 0; w &= w - 1 {
				f(word*64 + uint32(bits.TrailingZeros64(w)))
			}
		}
	}
}

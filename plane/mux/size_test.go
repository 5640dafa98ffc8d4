// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"testing"
	"unsafe"
)

// line is one of the processor's cache.
const line = 64

// TestLines: what each record touches of a slot is one line; of an inbox, with 16 bytes
// before it, one for a poller, and for another consumer two and one of what it took.
func TestLines(t *testing.T) {
	var s inSlot
	if end := unsafe.Offsetof(s.hungry) + unsafe.Sizeof(s.hungry); end != line || unsafe.Sizeof(s) != 2*line {
		t.Errorf("a slot is %d bytes, and what a record touches ends at %d", unsafe.Sizeof(s), end)
	}
	if unsafe.Sizeof(Frames{}) != line {
		t.Errorf("what was taken is %d bytes", unsafe.Sizeof(Frames{}))
	}
	var b Inbox
	if end := unsafe.Sizeof(b) + 8; unsafe.Offsetof(b.buf) != line-16 || end != 2*line-16 {
		t.Errorf("what a poller touches of an inbox is %d bytes, of %d", unsafe.Offsetof(b.buf), unsafe.Sizeof(b))
	}
}

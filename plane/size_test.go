// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"runtime"
	"testing"
	"unsafe"
)

// TestAnchorsAtRest: anchors that wait hold little memory and no goroutine. The goals are
// 314 bytes each (60 MiB for 200,000), and 1 KiB with a ticket; this holds what there is.
func TestAnchorsAtRest(t *testing.T) {
	many := 200_000
	if testing.Short() {
		many = 20_000
	}
	for name, c := range map[string]struct {
		ticket bool
		most   uint64 // bytes each
	}{"unattached": {false, 280}, "with a ticket": {true, 500}} {
		t.Run(name, func(t *testing.T) {
			n := node(t, Options{})
			list := make([]*Anchor, many)
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			goroutines := runtime.NumGoroutine()
			for i := range list {
				a, err := n.NewAnchor(AnchorOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if c.ticket {
					if _, err := a.Ticket(0); err != nil {
						t.Fatal(err)
					}
				}
				list[i] = a
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			each := (after.HeapAlloc - before.HeapAlloc) / uint64(many)
			t.Logf("%d bytes each, %d goroutines more", each, runtime.NumGoroutine()-goroutines)
			if each > c.most {
				t.Errorf("%d bytes each, want at most %d", each, c.most)
			}
			if more := runtime.NumGoroutine() - goroutines; more > 1 {
				t.Errorf("%d goroutines more", more)
			}
			runtime.KeepAlive(list)
		})
	}
}

// line is one of the processor's cache.
const line = 64

// TestSenderInOneLine: what each record touches of a sender to another node is one line.
// The allocator places 256 bytes at multiples of 256.
func TestSenderInOneLine(t *testing.T) {
	var r remote
	end := unsafe.Offsetof(r.Sender) + unsafe.Sizeof(r.out)
	if end != 2*line || unsafe.Sizeof(r) <= 240 || unsafe.Sizeof(r) > 256 {
		t.Errorf("%d bytes, a slot of %d, the way to it ends at %d", unsafe.Sizeof(r), unsafe.Sizeof(r.slot), end)
	}
}

// TestAnchorInLines: an anchor is three lines, of which who reads it touches two. The
// allocator places 192 bytes at multiples of 64.
func TestAnchorInLines(t *testing.T) {
	var a Anchor
	if end := unsafe.Offsetof(a.reader) + unsafe.Sizeof(a.reader); end != 2*line || unsafe.Sizeof(a) != 3*line {
		t.Errorf("%d bytes, of which the reader's end at %d", unsafe.Sizeof(a), end)
	}
	if size := unsafe.Sizeof(reader{}); size != 2*line {
		t.Errorf("a reader is %d bytes", size)
	}
}

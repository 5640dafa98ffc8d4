// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"encoding/binary"
	"sync"
	"sync/atomic"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// drainer is the producer's side of what is in an inbox: a slot, or a sender of this
// process. It is told what the consumer has taken.
type drainer interface {
	drained(records, bytes int)
	source() any
}

// Inbox is the buffer that a consumer reads from: whole stream frames, in order, each
// with the tag of the slot or local sender that it came through. It is bounded by the
// credit of those.
//
// The reader of a connection puts frames in; one goroutine at a time takes them. What a
// poller touches with each frame comes first, what another consumer does follows.
type Inbox struct {
	Owner  any                    // what the consumer is; set before the inbox is bound
	poller atomic.Pointer[Poller] // that serves it (Serve); written once
	closed atomic.Bool            // nobody will take any more; written under mu
	busy   atomic.Bool            // a server is stuck with it; unset under mu

	mu     sync.Mutex
	n      uint32
	direct bool    // frames go to the poller at once; set before it
	woken  bool    // the poller was told, and has not taken since
	parked bool    // a goroutine waits, and was not told
	buf    []byte  // frameHead and a frame, again and again
	first  drainer // the source with tag 0; most have no other
	others *others
	waits  *waiter // nil: nobody has waited yet
}

// others are the sources with tags from 1.
type others struct {
	list    []drainer
	free    []uint32
	leaving []uint32 // frames of these may be in the inbox,
	taken   []uint32 // and of these in what was taken last
}

// frameHead is the length of a frame and its tag, each as 4 bytes.
const frameHead = 8

// add gives a source its tag.
func (b *Inbox) add(d drainer) uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.first == nil {
		b.first = d
		return 0
	}
	o := b.more()
	if last := len(o.free) - 1; last >= 0 {
		tag := o.free[last]
		o.free = o.free[:last]
		o.list[tag-1] = d
		return tag
	}
	o.list = append(o.list, d)
	return uint32(len(o.list))
}

func (b *Inbox) more() *others {
	if b.others == nil {
		b.others = &others{}
	}
	return b.others
}

// push appends a frame. told: who is to be told of it (caller.tell), once no lock of the
// mux is held that it would wait for.
func (b *Inbox) push(tag uint32, frame []byte) (told caller, ok bool) {
	b.mu.Lock()
	if b.closed.Load() {
		b.mu.Unlock()
		return caller{}, false
	}
	b.buf = append(b.head(tag, len(frame)), frame...)
	told = b.pushed()
	b.mu.Unlock()
	return told, true
}

// pushItem is push of an item of msgpack bin, which is made in place.
func (b *Inbox) pushItem(tag uint32, item []byte) (told caller, ok bool) {
	b.mu.Lock()
	if b.closed.Load() {
		b.mu.Unlock()
		return caller{}, false
	}
	b.buf = wire.AppendItemBytes(b.head(tag, wire.ItemBytesLen(len(item))), item)
	told = b.pushed()
	b.mu.Unlock()
	return told, true
}

// head makes room for a frame of n bytes and appends what is before it. The lock is held.
func (b *Inbox) head(tag uint32, n int) []byte {
	if need := frameHead + n; cap(b.buf)-len(b.buf) < need {
		b.buf = grow(b.buf, need)
	}
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b.buf, uint32(n)), tag)
}

// pushed says who has to be told. The lock is held.
func (b *Inbox) pushed() (told caller) {
	b.n++
	if p := b.poller.Load(); p != nil && !b.woken {
		b.woken = true
		return caller{b, p}
	}
	return b.unparked()
}

// Frames is what was taken from an inbox, and how much of it was used: one line of the
// processor's cache.
type Frames struct {
	buf  []byte
	off  int
	only drainer // whose they all are; nil: several
	N    uint32  // frames that are left

	Used       uint32 // frames that were used, and their source was not told
	tag, bytes uint32 // of those
}

// Next returns the next frame and the tag of its source. The frame is valid until the
// next Inbox.Take with these Frames.
func (f *Frames) Next() (frame []byte, tag uint32, ok bool) {
	if f.N == 0 {
		return nil, 0, false
	}
	head := f.buf[f.off:]
	n := int(binary.LittleEndian.Uint32(head))
	tag = binary.LittleEndian.Uint32(head[4:])
	f.off += frameHead + n
	f.N--
	return head[frameHead : frameHead+n : frameHead+n], tag, true
}

// Free gives back what f holds, all of which was used.
func (f *Frames) Free() {
	freeBuffer(f.buf)
	*f = Frames{}
}

// Take fills f with all that waits; f must be used up or new. It reports whether there
// was anything. Whoever takes notes what was used (Use, Tell).
func (b *Inbox) Take(f *Frames) bool {
	b.mu.Lock()
	b.take(f)
	b.mu.Unlock()
	return f.N > 0
}

// take is Take with the lock held.
func (b *Inbox) take(f *Frames) {
	b.woken = false
	if o := b.others; o != nil && len(o.leaving)+len(o.taken) > 0 {
		for _, tag := range o.taken {
			b.forget(tag)
		}
		o.leaving, o.taken = o.taken[:0], o.leaving
	}
	spare := f.buf[:0]
	if cap(spare) > smallBuffer {
		freeBuffer(spare)
		spare = nil
	}
	f.buf, f.off, f.N, f.only = b.buf, 0, b.n, nil
	if b.others == nil || len(b.others.list) == 0 {
		f.only = b.first
	}
	b.buf, b.n = spare, 0
}

// Empty reports whether nothing waits now.
func (b *Inbox) Empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n == 0
}

// Use notes that a frame of n bytes was used, which f has or had. Its source may send
// another once Tell was called, or a frame of another source was used.
func (b *Inbox) Use(f *Frames, tag uint32, n int) {
	if f.tag != tag {
		b.Tell(f)
		f.tag = tag
	}
	f.Used++
	f.bytes += uint32(n) // of few frames, so it holds them
}

// Tell tells the source of what was used.
func (b *Inbox) Tell(f *Frames) {
	if f.Used == 0 {
		return
	}
	d := f.only
	if d == nil {
		b.mu.Lock()
		d = b.from(f.tag)
		b.mu.Unlock()
	}
	if d != nil {
		d.drained(int(f.Used), int(f.bytes))
	}
	f.Used, f.bytes = 0, 0
}

// Source is what the bind or local sender with the tag says of itself.
func (b *Inbox) Source(tag uint32) any {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := b.from(tag); d != nil {
		return d.source()
	}
	return nil
}

// from is the source with the tag, nil where it was forgotten. The lock is held.
func (b *Inbox) from(tag uint32) drainer {
	switch {
	case tag == 0:
		return b.first
	case b.others != nil && int(tag) <= len(b.others.list):
		return b.others.list[tag-1]
	}
	return nil
}

// Release forgets a source whose terminal was taken, once it was told of all that was used.
func (b *Inbox) Release(tag uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(tag)
}

// leave forgets a source that ends without a terminal, once its frames are used up.
func (b *Inbox) leave(tag uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.more()
	o.leaving = append(o.leaving, tag)
}

// forget frees a tag. The lock is held.
func (b *Inbox) forget(tag uint32) {
	switch {
	case tag == 0:
		b.first = nil
	case b.from(tag) == nil:
	case int(tag) == len(b.others.list):
		b.others.list = b.others.list[:tag-1]
	default:
		b.others.list[tag-1] = nil
		b.others.free = append(b.others.free, tag)
	}
}

// Close ends the inbox: what is in it is forgotten and nothing comes any more.
func (b *Inbox) Close() {
	b.mu.Lock()
	b.closed.Store(true)
	freeBuffer(b.buf)
	b.buf, b.n = nil, 0
	var stop func() bool
	if b.waits != nil {
		stop = b.waits.forget()
	}
	told := b.unparked()
	b.mu.Unlock()
	told.tell()
	if stop != nil {
		stop()
	}
}

// Serve hands the inbox to p, for good: nobody may Take but p's handler. direct: it has
// one source at a time, whose frames need not wait in it.
func (b *Inbox) Serve(p *Poller, direct bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.poller.Load() != nil {
		return
	}
	b.direct = direct
	if b.n > 0 {
		b.woken = true
		p.look(b)
	}
	b.poller.Store(p) // last: what waits comes before what goes directly
}

// keep appends the frame of an item if the inbox is busy, and reports whether it is.
func (b *Inbox) keep(r *Run, it arrival) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.busy.Load() {
		return false
	}
	if it.slot != nil && !b.closed.Load() {
		b.buf = append(b.head(it.slot.tag, int(it.n)), r.frame(it)...)
		b.n++
	}
	return true
}

// rest ends a busy time, unless something waits.
func (b *Inbox) rest() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n > 0 {
		return false
	}
	b.busy.Store(false)
	return true
}

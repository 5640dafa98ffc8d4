// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"context"
	"encoding/binary"
	"sync"

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
// The reader of a connection puts frames in; one goroutine at a time takes them.
type Inbox struct {
	mu      sync.Mutex
	buf     []byte // frameHead and a frame, again and again
	n       int
	woken   bool // somebody was told, and has not taken since
	parked  bool // a goroutine waits on wake
	closed  bool // nobody will take any more
	sources []drainer
	poller  *Poller
	tags    *tags // nil: one source after another needs none
	wake    chan struct{}
	Owner   any // what the consumer is; set before the inbox is bound
}

// tags are those of sources that are gone.
type tags struct {
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
	if t := b.tags; t != nil && len(t.free) > 0 {
		last := len(t.free) - 1
		tag := t.free[last]
		t.free = t.free[:last]
		b.sources[tag] = d
		return tag
	}
	b.sources = append(b.sources, d)
	return uint32(len(b.sources) - 1)
}

// push appends a frame. wake: the consumer has to be told (wakeAll).
func (b *Inbox) push(tag uint32, frame []byte) (wake, ok bool) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false, false
	}
	b.buf = append(b.head(tag, len(frame)), frame...)
	wake = b.pushed()
	b.mu.Unlock()
	return wake, true
}

// pushItem is push of an item of msgpack bin, which is made in place.
func (b *Inbox) pushItem(tag uint32, item []byte) (wake, ok bool) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false, false
	}
	b.buf = wire.AppendItemBytes(b.head(tag, wire.ItemBytesLen(len(item))), item)
	wake = b.pushed()
	b.mu.Unlock()
	return wake, true
}

// head makes room for a frame of n bytes and appends what is before it. The lock is held.
func (b *Inbox) head(tag uint32, n int) []byte {
	if need := frameHead + n; cap(b.buf)-len(b.buf) < need {
		b.buf = grow(b.buf, need)
	}
	return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b.buf, uint32(n)), tag)
}

// pushed reports whether the consumer has to be told. The lock is held.
func (b *Inbox) pushed() (wake bool) {
	b.n++
	wake = !b.woken
	b.woken = true
	return wake
}

// tell wakes who waits for the inbox.
func (b *Inbox) tell() {
	b.mu.Lock()
	if b.parked {
		b.parked = false
		b.wake <- struct{}{} // it has room for the one who waits
	}
	p := b.poller
	b.mu.Unlock()
	if p != nil {
		p.Add(b)
	}
}

// Frames is what was taken from an inbox.
type Frames struct {
	buf  []byte
	off  int
	N    int     // frames that are left
	only drainer // whose they all are; nil: several
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

// Take fills f with all that waits; f must be used up or new. It reports whether there
// was anything. Whoever takes tells Drained as frames are used.
func (b *Inbox) Take(f *Frames) bool {
	b.mu.Lock()
	b.woken = false
	if t := b.tags; t != nil && len(t.leaving)+len(t.taken) > 0 {
		for _, tag := range t.taken {
			b.forget(tag)
		}
		t.leaving, t.taken = t.taken[:0], t.leaving
	}
	spare := f.buf[:0]
	if cap(spare) > smallBuffer {
		freeBuffer(spare)
		spare = nil
	}
	f.buf, f.off, f.N, f.only = b.buf, 0, b.n, nil
	if len(b.sources) == 1 {
		f.only = b.sources[0]
	}
	b.buf, b.n = spare, 0
	b.mu.Unlock()
	return f.N > 0
}

// Empty reports whether nothing waits now.
func (b *Inbox) Empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n == 0
}

// Drained says that so many frames of a source, which f has or had, were used.
func (b *Inbox) Drained(f *Frames, tag uint32, records, bytes int) {
	d := f.only
	if d == nil {
		b.mu.Lock()
		d = b.from(tag)
		b.mu.Unlock()
	}
	if d != nil {
		d.drained(records, bytes)
	}
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
	if int(tag) < len(b.sources) {
		return b.sources[tag]
	}
	return nil
}

// Release forgets a source whose terminal was taken, once Drained was told all of it.
func (b *Inbox) Release(tag uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(tag)
}

// leave forgets a source that ends without a terminal, once its frames are used up.
func (b *Inbox) leave(tag uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tags == nil {
		b.tags = &tags{}
	}
	b.tags.leaving = append(b.tags.leaving, tag)
}

// forget frees a tag. The lock is held.
func (b *Inbox) forget(tag uint32) {
	if b.from(tag) == nil {
		return
	}
	b.sources[tag] = nil
	if int(tag) == len(b.sources)-1 { // the only one, most likely
		b.sources = b.sources[:tag]
		return
	}
	if b.tags == nil {
		b.tags = &tags{}
	}
	b.tags.free = append(b.tags.free, tag)
}

// Wait returns when there may be something to take, or with ctx's error.
func (b *Inbox) Wait(ctx context.Context) error {
	b.mu.Lock()
	if b.n > 0 || b.closed {
		b.mu.Unlock()
		return nil
	}
	if b.wake == nil {
		b.wake = make(chan struct{}, 1)
	}
	b.parked = true
	b.woken = false
	b.mu.Unlock()
	done := ctx.Done()
	if done == nil {
		<-b.wake
		return nil
	}
	select {
	case <-b.wake:
		return nil
	case <-done:
	}
	b.mu.Lock()
	if !b.parked {
		<-b.wake // it was told meanwhile
	}
	b.parked = false
	b.mu.Unlock()
	return ctx.Err()
}

// Close ends the inbox: what is in it is forgotten and nothing comes any more.
func (b *Inbox) Close() {
	b.mu.Lock()
	b.closed = true
	freeBuffer(b.buf)
	b.buf, b.n = nil, 0
	if b.parked {
		b.parked = false
		b.wake <- struct{}{}
	}
	b.mu.Unlock()
}

// Poll hands the inbox to p, which is told from now on when there is something to take;
// nil takes it away from its poller, which may still be told once.
func (b *Inbox) Poll(p *Poller) {
	b.mu.Lock()
	b.poller = p
	ready := p != nil && b.n > 0
	b.woken = b.woken || ready
	b.mu.Unlock()
	if ready {
		p.Add(b)
	}
}

// Poller gathers inboxes that have something to take, for one goroutine that serves
// thousands of streams. The zero value is ready.
type Poller struct {
	mu     sync.Mutex
	ready  []*Inbox
	parked int // goroutines that wait, and were not told
	wake   chan struct{}
}

// mostPollers bounds the goroutines that wait in one poller; they are few, and a channel of
// nothing costs nothing.
const mostPollers = 1 << 16

// Add has inboxes served (once more).
func (p *Poller) Add(list ...*Inbox) {
	p.mu.Lock()
	p.ready = append(p.ready, list...)
	if p.parked > 0 {
		p.parked--
		p.wake <- struct{}{}
	}
	p.mu.Unlock()
}

// Next waits for inboxes that have something to take and appends them to list.
func (p *Poller) Next(ctx context.Context, list []*Inbox) ([]*Inbox, error) {
	for {
		p.mu.Lock()
		if len(p.ready) > 0 {
			list = append(list, p.ready...)
			clear(p.ready)
			p.ready = p.ready[:0]
			p.mu.Unlock()
			return list, nil
		}
		if p.wake == nil {
			p.wake = make(chan struct{}, mostPollers)
		}
		p.parked++
		p.mu.Unlock()
		select {
		case <-p.wake:
		case <-ctx.Done():
			p.mu.Lock()
			if p.parked > 0 {
				p.parked--
			} else {
				<-p.wake // everybody was told
			}
			p.mu.Unlock()
			return list, ctx.Err()
		}
	}
}

// wakeAll tells the consumers of inboxes, one poller once.
func wakeAll(list []*Inbox) {
	var p *Poller
	from := 0
	for i, b := range list {
		b.mu.Lock()
		mine := b.poller
		if b.parked {
			b.parked = false
			b.wake <- struct{}{}
		}
		b.mu.Unlock()
		if mine != p {
			if p != nil {
				p.Add(list[from:i]...)
			}
			p, from = mine, i
		}
	}
	if p != nil {
		p.Add(list[from:]...)
	}
}

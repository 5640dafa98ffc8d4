// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// tap is a link that the test pulls from by hand.
type tap struct {
	src   Source
	down  func(error)
	kicks atomic.Int64
	eager bool // credit is to return at each take
}

func (l *tap) Kick()  { l.kicks.Add(1) }
func (l *tap) Close() {}

// sent is a batch as it left.
type sent struct {
	header  wire.BatchHeader
	records []wire.Record
	size    int // of the payload
}

// take pulls a batch and has it written, or nil.
func (l *tap) take(t testing.TB) *sent {
	t.Helper()
	s := l.takeOnly(t)
	if s != nil {
		l.src.Wrote(nil)
	}
	return s
}

func (l *tap) takeOnly(t testing.TB) *sent {
	t.Helper()
	if p := l.src.(*Peer); l.eager {
		p.in.mu.Lock()
		p.returnAll()
		p.in.mu.Unlock()
	}
	frame := l.src.Take()
	if frame == nil {
		return nil
	}
	pre, err := wire.ParsePreamble(frame)
	if err != nil || len(frame) != wire.PreambleLen+pre.Header+pre.Payload {
		t.Fatalf("a frame of %d bytes says %+v: %v", len(frame), pre, err)
	}
	payload := slices.Clone(frame[wire.PreambleLen+pre.Header:])
	var records wire.Records
	s := &sent{size: len(payload)}
	if s.header, err = records.Reset(payload); err != nil {
		t.Fatal(err)
	}
	for rec := (wire.Record{}); records.Next(&rec); {
		s.records = append(s.records, rec)
	}
	if records.Err() != nil || len(s.records) == 0 {
		t.Fatalf("a batch of %d records: %v", len(s.records), records.Err())
	}
	return s
}

// all pulls until nothing is left and says what came, one record a word.
func (l *tap) all(t testing.TB) string {
	t.Helper()
	var words []string
	for s := l.take(t); s != nil; s = l.take(t) {
		for i := range s.records {
			words = append(words, say(&s.records[i]))
		}
	}
	return strings.Join(words, " ")
}

// say is a record in short: type, index.generation, what it holds.
func say(r *wire.Record) string {
	id := fmt.Sprintf("%d.%d", r.Slot.Index(), r.Slot.Generation())
	switch r.Type {
	case wire.OpenSlot:
		return "open:" + id
	case wire.CloseSlot:
		return "close:" + id + ":" + wire.ParseClose(r.Body).String()
	case wire.CreditUpdate:
		return fmt.Sprintf("credit:%s:%d", id, wire.ParseCredit(r.Body))
	case wire.LifecycleSlot:
		_, action := wire.ParseLifecycle(r.Body)
		return action.String() + ":" + id
	}
	return "data:" + id + ":" + show(r.Body)
}

// show is a stream frame in short: an item's text, or the kind.
func show(frame []byte) string {
	kind, body, err := wire.ParseStreamFrame(frame)
	if err != nil {
		return "malformed"
	}
	if kind == wire.Item {
		text, _ := wire.ItemBytes(body)
		return string(text)
	}
	return kind.String()
}

// solo is a mux whose one peer is the test. Its sweep runs by steps alone.
func solo(t testing.TB, o Options) (*Mux, *tap) {
	t.Helper()
	l := &tap{}
	o.Worker = consumer
	o.Dial = func(_ wire.WorkerID, s Source, down func(error)) Link {
		l.src, l.down = s, down
		return l
	}
	m := New(o)
	m.stop()
	m.wg.Wait()
	t.Cleanup(m.Close)
	if _, err := m.Peer(producer, wire.V2); err != nil {
		t.Fatal(err)
	}
	return m, l
}

// begin opens a slot of its own.
func (p *Peer) begin(t Terms, h Producer) (*Owner, error) {
	o := &Owner{}
	if err := p.Open(o, t, h); err != nil {
		return nil, err
	}
	return o, nil
}

// steps passes time.
func (m *Mux) steps(t testing.TB, n uint32) {
	for range n {
		now := m.tick.Add(1)
		m.mu.RLock()
		var peers []*Peer
		for _, p := range m.peers {
			peers = append(peers, p)
		}
		m.mu.RUnlock()
		for _, p := range peers {
			p.sweep(t.Context(), now)
		}
	}
	m.wg.Wait() // those that are asked whether they live
}

// bound are binds of sessions 1 to n, whose anchors have the same numbers.
func bound(m *Mux, n int) (boxes []*Inbox) {
	for i := range n {
		b := &Bind{Anchor: uint64(i + 1), Session: uint64(i + 1), Inbox: &Inbox{}}
		m.Bind(b)
		boxes = append(boxes, b.Inbox)
	}
	return boxes
}

// got takes all of an inbox and says what it was; drained grants credit for it.
func got(b *Inbox, drain bool) string {
	var f Frames
	var words []string
	for b.Take(&f) {
		for f.N > 0 {
			frame, tag, _ := f.Next()
			words = append(words, show(frame))
			if drain && !wire.IsTerminal(frame) {
				drained(b, &Frames{}, tag, 1, len(frame))
			}
		}
	}
	return strings.Join(words, " ")
}

func slot(index, generation int) wire.SlotID {
	return wire.MakeSlotID(uint32(index), uint8(generation))
}

func opens(id wire.SlotID, session uint64) wire.Record {
	body := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, session), session)
	return wire.Record{Type: wire.OpenSlot, Slot: id, Body: body}
}

func item(id wire.SlotID, seq uint32, text string) wire.Record {
	return wire.Record{Type: wire.Data, Slot: id, FrameSeq: seq, Body: wire.AppendItemBytes(nil, []byte(text))}
}

func frame(id wire.SlotID, seq uint32, body []byte) wire.Record {
	return wire.Record{Type: wire.Data, Slot: id, FrameSeq: seq, Body: body}
}

func closes(id wire.SlotID, seq uint32, r wire.CloseReason) wire.Record {
	return wire.Record{Type: wire.CloseSlot, Slot: id, FrameSeq: seq, Body: []byte{byte(r)}}
}

func credits(id wire.SlotID, n uint32) wire.Record {
	return wire.Record{Type: wire.CreditUpdate, Slot: id, Body: binary.BigEndian.AppendUint32(nil, n)}
}

func lifecycles(id wire.SlotID, session uint64, a wire.Lifecycle) wire.Record {
	return wire.Record{Type: wire.LifecycleSlot, Slot: id, Body: append(binary.BigEndian.AppendUint64(nil, session), byte(a))}
}

// batched is the payload of a batch.
func batched(epoch uint64, seq uint32, records ...wire.Record) []byte {
	b := wire.AppendBatchHeader(nil, wire.BatchHeader{Version: wire.V2, Count: uint16(len(records)), Epoch: epoch, Seq: seq})
	for i := range records {
		b = wire.AppendRecord(b, &records[i])
	}
	return b
}

func value(c prometheus.Metric) float64 {
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		panic(err)
	}
	return m.GetCounter().GetValue()
}

// sound checks what must hold of a mux at any time.
func (m *Mux) sound(t testing.TB) {
	t.Helper()
	var slots, held int64
	for _, p := range m.peers {
		p.in.mu.Lock()
		live, bytes := 0, 0
		for i, s := range p.in.slots {
			if s == nil {
				continue
			}
			live++
			own := 0
			for _, h := range s.hold {
				own += len(h.body)
				held++
			}
			bytes += own
			credit := s.credit
			if own != s.held || credit < 0 || credit > int32(m.opts.Window) || int(s.id.Index()) != i || s.gone {
				t.Errorf("slot %d holds %d bytes, said to be %d, and has credit %d, gone %v", s.id, own, s.held, credit, s.gone)
			}
		}
		if live != p.in.live || bytes != p.in.held {
			t.Errorf("%d slots live and %d bytes are held, said to be %d and %d", live, bytes, p.in.live, p.in.held)
		}
		slots += int64(live)
		p.in.mu.Unlock()
		p.out.mu.Lock()
		queued, owned := 0, 0
		for _, b := range append(slices.Clone(p.out.sealed), p.out.stage) {
			if b != nil {
				queued += len(b.buf)
			}
		}
		for _, o := range p.out.owners {
			if o != nil {
				owned++
			}
		}
		if queued != p.out.queued || owned != len(p.out.owners)-len(p.out.free) {
			t.Errorf("%d bytes queued, said to be %d; %d slots owned, %d free of %d", queued, p.out.queued, owned, len(p.out.free), len(p.out.owners))
		}
		slots += int64(owned)
		p.out.mu.Unlock()
	}
	if n := m.opts.Metrics.LiveSlots.Load(); n != slots {
		t.Errorf("the gauge has %d slots, there are %d", n, slots)
	}
	if n := m.opts.Metrics.Held.Load(); n != held {
		t.Errorf("the gauge has %d held records, there are %d", n, held)
	}
}

// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
)

const (
	openBatch   = "01 00 0001 0000000000000001 00000000  01 00000000 00000000 00000010 0000000000000001 0000000000000001"
	dataBatch   = "01 00 0002 0000000000000001 00000001  00 00000000 00000001 0000000c 81a44974656da568656c6c6f  00 00000000 00000002 0000000c 81a44974656da5776f726c64"
	creditBatch = "01 00 0001 0000000000000001 00000000  03 00000000 00000000 00000004 00000002"
	finalBatch  = "01 00 0002 0000000000000001 00000002  00 00000000 00000003 0000000a a946696e616c697a6564  02 00000000 00000004 00000001 00"
)

// walk returns the records of a batch and the fault at which they end.
func walk(batch []byte) (h BatchHeader, records []Record, err error) {
	var r Records
	if h, err = r.Reset(batch); err != nil {
		return h, nil, err
	}
	for rec := (Record{}); r.Next(&rec); {
		records = append(records, rec)
	}
	return h, records, r.Err()
}

func TestBatchVectors(t *testing.T) {
	for _, tt := range []struct {
		name    string
		h       BatchHeader
		records []Record
		hex     string
	}{
		{"open", BatchHeader{V1, 0, 1, 1, 0}, []Record{{OpenSlot, 0, 0, unhex(t, "0000000000000001 0000000000000001")}}, openBatch},
		{"data", BatchHeader{V1, 0, 2, 1, 1}, []Record{{Data, 0, 1, AppendItem(nil, []byte("\xa5hello"))}, {Data, 0, 2, AppendItem(nil, []byte("\xa5world"))}}, dataBatch},
		{"credit", BatchHeader{V1, 0, 1, 1, 0}, []Record{{CreditUpdate, 0, 0, []byte{0, 0, 0, 2}}}, creditBatch},
		{"final", BatchHeader{V1, 0, 2, 1, 2}, []Record{{Data, 0, 3, FrameFinalized}, {CloseSlot, 0, 4, []byte{0}}}, finalBatch},
		{"heartbeat", BatchHeader{V1, 0, 1, 2, 3}, []Record{{SlotHeartbeat, 0x0102, 4, nil}}, "01 00 0001 0000000000000002 00000003  04 00000102 00000004 00000000"},
		{"lifecycle", BatchHeader{V2, 0, 1, 2, 3}, []Record{{LifecycleSlot, 0x0102, 0, unhex(t, "0000000000000005 01")}}, "02 00 0001 0000000000000002 00000003  05 00000102 00000000 00000009 0000000000000005 01"},
		{"empty", BatchHeader{V1, 0, 0, 1, 0}, nil, "01 00 0000 0000000000000001 00000000"},
		{"flags", BatchHeader{V1, 0xff, 0, 0, math.MaxUint32}, nil, "01 ff 0000 0000000000000000 ffffffff"},
		{"extremes", BatchHeader{V2, 15, 1, math.MaxUint64, math.MaxUint32}, []Record{{Data, math.MaxUint32, math.MaxUint32, nil}}, "02 0f 0001 ffffffffffffffff ffffffff  00 ffffffff ffffffff 00000000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := AppendBatchHeader(nil, BatchHeader{Version: 9})
			for i := range tt.records {
				b = AppendRecord(b, &tt.records[i])
			}
			PutBatchHeader(b, tt.h) // the count is patched in at the end
			equal(t, b, tt.hex)
			h, records, err := walk(b)
			if err != nil || h != tt.h || len(records) != len(tt.records) {
				t.Fatalf("read as %+v, %d records, %v", h, len(records), err)
			}
			for i, rec := range records {
				want := tt.records[i]
				if rec.Type != want.Type || rec.Slot != want.Slot || rec.FrameSeq != want.FrameSeq || !bytes.Equal(rec.Body, want.Body) {
					t.Errorf("record %d is %+v, want %+v", i, rec, want)
				}
			}
		})
	}
}

func TestControlRecords(t *testing.T) {
	slot := MakeSlotID(1, 2)
	b := AppendBatchHeader(nil, BatchHeader{Version: V2, Count: 8})
	b = AppendOpen(b, slot, 0, MPSCBit|3, 4)
	b = AppendCredit(b, slot, math.MaxUint32)
	b = AppendLifecycle(b, slot, 4, Stop)
	b = AppendLifecycle(b, slot, 4, Cancel)
	for reason := TerminalSent; reason <= ProtocolError; reason++ {
		b = AppendClose(b, slot, 5, reason)
	}
	_, records, err := walk(b)
	if err != nil || len(records) != 8 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for i, rec := range records {
		if rec.Slot != slot || !rec.Type.Control() {
			t.Errorf("record %d is %+v", i, rec)
		}
	}
	if anchor, session := ParseOpen(records[0].Body); anchor != MPSCBit|3 || session != 4 {
		t.Errorf("open of %x, %d", anchor, session)
	}
	if n := ParseCredit(records[1].Body); n != math.MaxUint32 || records[1].FrameSeq != 0 {
		t.Errorf("credit of %d", n)
	}
	for i, want := range []Lifecycle{Stop, Cancel} {
		if session, action := ParseLifecycle(records[2+i].Body); session != 4 || action != want {
			t.Errorf("%s of %d, want %s", action, session, want)
		}
	}
	for i, rec := range records[4:] {
		reason := ParseClose(rec.Body)
		if int(reason) != i || reason.FromOwner() != (i < 2) || rec.FrameSeq != 5 {
			t.Errorf("close %d is %s, %+v", i, reason, rec)
		}
	}
	if Data.Control() || SlotHeartbeat.Control() {
		t.Error("data and heartbeats are no control")
	}
}

// What a receiver must make of malformed batches: the good records first, then one fault.
func TestBatchMalformed(t *testing.T) {
	const (
		head = "01 00 0002 0000000000000001 00000000"
		good = "00 00000000 00000001 00000001 c0"
	)
	for _, tt := range []struct {
		name, hex string
		records   int
		cause     error
	}{
		{"unknown version", "03 00 0001 0000000000000007 00000000" + good, 0, ErrVersion},
		{"unknown type", head + good + "06 00000000 00000002 00000000", 1, ErrRecordType},
		{"lifecycle in v1", head + good + "05 00000000 00000000 00000009 0000000000000001 00", 1, ErrRecordType},
		{"type 6 in v2", "02" + head[2:] + good + "06 00000000 00000000 00000000", 1, ErrRecordType},
		{"header cut", head + good + "00 00000000 00000002 000000", 1, ErrTruncated},
		{"body cut", head + good + "00 00000000 00000002 00000002 c0", 1, ErrTruncated},
		{"body missing", head + good + "00 00000000 00000002 00000001", 1, ErrTruncated},
		{"huge length", head + good + "00 00000000 00000002 ffffffff c0", 1, ErrTruncated},
		{"open of 15", head + good + "01 00000000 00000002 0000000f 000000000000000000000000000000", 1, ErrBodyLength},
		{"open of 17", head + good + "01 00000000 00000002 00000011 0000000000000000000000000000000000", 1, ErrBodyLength},
		{"close of 0", head + good + "02 00000000 00000002 00000000", 1, ErrBodyLength},
		{"close of 2", head + good + "02 00000000 00000002 00000002 0000", 1, ErrBodyLength},
		{"credit of 3", head + good + "03 00000000 00000000 00000003 000000", 1, ErrBodyLength},
		{"heartbeat of 1", head + good + "04 00000000 00000002 00000001 00", 1, ErrBodyLength},
		{"lifecycle of 8", "02" + head[2:] + good + "05 00000000 00000000 00000008 0000000000000001", 1, ErrBodyLength},
		{"close reason", head + good + "02 00000000 00000002 00000001 04", 1, ErrCloseReason},
		{"lifecycle action", "02" + head[2:] + good + "05 00000000 00000000 00000009 0000000000000001 02", 1, ErrLifecycle},
		{"fewer records than declared", head + good, 1, ErrRecordCount},
		{"none of the declared", head, 0, ErrRecordCount},
		{"bytes after the last", head + good + good + "ff", 2, ErrTrailing},
		{"more records than declared", head + good + good + good, 2, ErrTrailing},
		{"bytes after a bare header", "01 00 0000 0000000000000001 00000000 00", 0, ErrTrailing},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h, records, err := walk(unhex(t, tt.hex))
			wantErr(t, err, tt.cause)
			if len(records) != tt.records || h.Epoch == 0 {
				t.Errorf("%d records of %+v, want %d", len(records), h, tt.records)
			}
			for _, rec := range records {
				if !bytes.Equal(rec.Body, []byte{0xc0}) {
					t.Errorf("a record of %x", rec.Body)
				}
			}
		})
	}
	for n := range BatchHeaderLen {
		_, records, err := walk(unhex(t, openBatch)[:n])
		wantErr(t, err, ErrShort)
		if records != nil {
			t.Errorf("%d records of %d bytes", len(records), n)
		}
	}
}

// A batch cut anywhere yields the records before the cut and one fault, again and again.
func TestBatchCut(t *testing.T) {
	batch := unhex(t, dataBatch)
	var r Records
	for n := BatchHeaderLen; n < len(batch); n++ {
		if _, err := r.Reset(batch[:n]); err != nil {
			t.Fatal(err)
		}
		records := 0
		for rec := (Record{}); r.Next(&rec); {
			records++
		}
		if want := (n - BatchHeaderLen) / 25; records != want || r.Err() == nil {
			t.Errorf("%d bytes: %d records, %v, want %d", n, records, r.Err(), want)
		}
		if r.Next(new(Record)) {
			t.Errorf("%d bytes: a record after the fault", n)
		}
	}
}

func TestRecordsReuse(t *testing.T) {
	var r Records
	if r.Next(new(Record)) || r.Err() != nil {
		t.Error("the zero value has records")
	}
	if _, err := r.Reset(nil); !errors.Is(err, ErrShort) || !errors.Is(r.Err(), ErrShort) || r.Next(new(Record)) {
		t.Errorf("nothing: %v, %v", err, r.Err())
	}
	if _, err := r.Reset(unhex(t, creditBatch)); err != nil || r.Err() != nil {
		t.Errorf("after a fault: %v, %v", err, r.Err())
	}
	if !r.Next(new(Record)) || r.Next(new(Record)) || r.Err() != nil {
		t.Errorf("want one record, %v", r.Err())
	}
}

// A record's body ends where it ends: an append to it must not reach the next record.
func TestBodyCapacity(t *testing.T) {
	batch := unhex(t, dataBatch)
	_, records, err := walk(batch)
	if err != nil {
		t.Fatal(err)
	}
	_ = append(records[0].Body, 0xff)
	equal(t, batch, dataBatch)
}

func TestBatchFull(t *testing.T) {
	b := AppendBatchHeader(nil, BatchHeader{Version: V1, Count: MaxRecords})
	for i := range MaxRecords {
		b = AppendCredit(b, SlotID(i), 1)
	}
	if _, records, err := walk(b); err != nil || len(records) != MaxRecords {
		t.Errorf("%d records, %v", len(records), err)
	}
	_, records, err := walk(AppendCredit(b, 0, 1))
	if wantErr(t, err, ErrTrailing); len(records) != MaxRecords {
		t.Errorf("%d records", len(records))
	}
}

func TestLargeBody(t *testing.T) {
	body := bytes.Repeat([]byte("velo"), 1<<20)
	b := AppendBatchHeader(nil, BatchHeader{Version: V1, Count: 2})
	b = AppendRecord(b, &Record{Type: Data, Slot: 1, FrameSeq: 1, Body: body})
	b = AppendRecord(b, &Record{Type: Data, Slot: 1, FrameSeq: 2})
	_, records, err := walk(b)
	if err != nil || len(records) != 2 || !bytes.Equal(records[0].Body, body) || len(records[1].Body) != 0 {
		t.Errorf("%d records, %v", len(records), err)
	}
}

func TestSlotID(t *testing.T) {
	for _, tt := range []struct {
		index      uint32
		generation uint8
		want       SlotID
	}{
		{0, 0, 0},
		{0, 1, 1},
		{1, 0, 0x100},
		{MaxIndex - 1, 255, 0x00ffffff},
		{1<<24 - 1, 255, math.MaxUint32},
	} {
		id := MakeSlotID(tt.index, tt.generation)
		if id != tt.want || id.Index() != tt.index || id.Generation() != tt.generation {
			t.Errorf("%d, %d: %#x", tt.index, tt.generation, id)
		}
	}
	// The generation wraps without touching the index.
	if id := MakeSlotID(7, MakeSlotID(7, 255).Generation()+1); id != MakeSlotID(7, 0) {
		t.Errorf("after generation 255: %#x", id)
	}
	defer func() {
		if recover() == nil {
			t.Error("an index of 25 bits was taken")
		}
	}()
	MakeSlotID(1<<24, 0)
}

func TestVersion(t *testing.T) {
	for key, want := range map[string]Version{KeyV1: V1, KeyV2: V2} {
		if v, ok := VersionOf(key); !ok || v != want || v.Key() != key {
			t.Errorf("%s: %d, %v, %s", key, v, ok, v.Key())
		}
	}
	if v, ok := VersionOf(KeyTCPStream); ok || v.Key() != "" {
		t.Errorf("%s is version %d of the mux", KeyTCPStream, v)
	}
}

func TestSeq(t *testing.T) {
	for _, tt := range []struct {
		a, b  uint32
		newer bool
		gap   uint32 // where a comes and b was expected
	}{
		{1, 0, true, 1},
		{0, 0, false, 0},
		{0, 1, false, math.MaxUint32},
		{0, math.MaxUint32, true, 1},
		{2, math.MaxUint32 - 1, true, 4},
		{math.MaxUint32, 0, false, math.MaxUint32},
	} {
		if SeqNewer(tt.a, tt.b) != tt.newer || SeqGap(tt.b, tt.a) != tt.gap {
			t.Errorf("%d after %d: %v, gap %d", tt.a, tt.b, SeqNewer(tt.a, tt.b), SeqGap(tt.b, tt.a))
		}
	}
}

// The error names the record and the byte, so that a capture can be looked at.
func TestBatchErrorNamesPlace(t *testing.T) {
	_, _, err := walk(unhex(t, dataBatch)[:50])
	if err == nil || !strings.Contains(err.Error(), "record 1 of 2") || !strings.Contains(err.Error(), "byte 41 of 50") {
		t.Errorf("%v", err)
	}
}

func hundredRecords() []byte {
	b := AppendBatchHeader(nil, BatchHeader{Version: V2, Count: 100})
	body := make([]byte, 160)
	for i := range 100 {
		b = AppendRecordHeader(b, Data, MakeSlotID(uint32(i), 0), 1, ItemBytesLen(len(body)))
		b = AppendItemBytes(b, body)
	}
	return b
}

func TestBatchAllocs(t *testing.T) {
	batch := hundredRecords()
	buf := make([]byte, 0, 4096)
	rec := Record{Type: Data, Slot: 1, FrameSeq: 2, Body: FrameHeartbeat}
	noAllocs(t, "AppendRecord", func() { buf = AppendRecord(buf[:0], &rec) })
	noAllocs(t, "AppendRecordHeader", func() { buf = AppendRecordHeader(buf[:0], Data, 1, 2, 3) })
	noAllocs(t, "control", func() {
		buf = AppendBatchHeader(buf[:0], BatchHeader{Version: V2})
		buf = AppendOpen(buf, 1, 0, 2, 3)
		buf = AppendCredit(buf, 1, 2)
		buf = AppendClose(buf, 1, 3, TerminalSent)
		buf = AppendLifecycle(buf, 1, 3, Stop)
	})
	var r Records
	n := 0
	noAllocs(t, "Records", func() {
		_, _ = r.Reset(batch)
		for r.Next(&rec) {
			n++
		}
	})
	if n%100 != 0 || r.Err() != nil {
		t.Errorf("%d records, %v", n, r.Err())
	}
}

func BenchmarkRecords(b *testing.B) {
	batch := hundredRecords()
	var r Records
	var rec Record
	b.ReportAllocs()
	b.SetBytes(int64(len(batch)))
	for b.Loop() {
		_, _ = r.Reset(batch)
		for r.Next(&rec) {
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100, "ns/record")
}

func BenchmarkAppendRecord(b *testing.B) {
	body := make([]byte, 160)
	buf := make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendRecordHeader(buf[:0], Data, 1, 2, ItemBytesLen(len(body)))
		buf = AppendItemBytes(buf, body)
	}
}

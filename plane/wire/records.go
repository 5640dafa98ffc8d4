// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// What is wrong with a batch. The records before the fault stand, the rest is skipped;
// no slot is closed and nothing is answered: the gap in the sequence ends such a slot.
var (
	// ErrRecordType: a type that the batch's version does not have.
	ErrRecordType = errors.New("unknown record type")
	// ErrTruncated: the batch ends inside a record.
	ErrTruncated = errors.New("truncated record")
	// ErrBodyLength: not the length that the type's body must have.
	ErrBodyLength = errors.New("wrong body length")
	// ErrCloseReason: a CloseSlot for a reason that does not exist.
	ErrCloseReason = errors.New("unknown close reason")
	// ErrLifecycle: a LifecycleSlot with an action that does not exist.
	ErrLifecycle = errors.New("unknown lifecycle action")
	// ErrRecordCount: the batch holds fewer records than it declares.
	ErrRecordCount = errors.New("fewer records than declared")
	// ErrTrailing: bytes follow the last record.
	ErrTrailing = errors.New("bytes after the last record")
)

// bodyLengths are the lengths in bytes that bodies must have; any for Data.
var bodyLengths = [...]uint32{OpenSlot: 16, CloseSlot: 1, CreditUpdate: 4, SlotHeartbeat: 0, LifecycleSlot: 9}

// Records walks the records of a batch without allocating:
//
//	var records wire.Records
//	header, err := records.Reset(batch)
//	for record := (wire.Record{}); records.Next(&record); {
//		…
//	}
//	err = records.Err()
//
// The zero value has no records. It may be used again and again.
type Records struct {
	batch []byte
	off   int
	read  uint16
	count uint16
	types RecordType // those below it exist in this batch's version
	err   error
}

// Reset begins with another batch. It fails only if the batch is shorter than its header.
// A version that is not ours shows in the header and in Err, and yields no record: the epoch
// of such a batch still counts.
func (r *Records) Reset(batch []byte) (BatchHeader, error) {
	*r = Records{}
	h, err := ParseBatchHeader(batch)
	if err != nil {
		r.err = err
		return h, err
	}
	switch h.Version {
	case V1:
		r.types = LifecycleSlot
	case V2:
		r.types = LifecycleSlot + 1
	default:
		r.err = fmt.Errorf("reading a batch: %w %d of the mux", ErrVersion, h.Version)
		return h, nil
	}
	r.batch, r.off, r.count = batch, BatchHeaderLen, h.Count
	return h, nil
}

// Next reads the next record into rec, which keeps a view into the batch. It returns
// false at the end and at the first fault, which Err then tells.
func (r *Records) Next(rec *Record) bool {
	if r.read == r.count {
		if r.off < len(r.batch) {
			r.fail(ErrTrailing)
		}
		return false
	}
	b := r.batch[r.off:]
	if len(b) < RecordHeaderLen {
		if len(b) == 0 {
			return r.fail(ErrRecordCount)
		}
		return r.fail(ErrTruncated)
	}
	t, n := RecordType(b[0]), binary.BigEndian.Uint32(b[9:])
	if t >= r.types {
		return r.fail(ErrRecordType)
	}
	if uint64(n) > uint64(len(b)-RecordHeaderLen) {
		return r.fail(ErrTruncated)
	}
	end := RecordHeaderLen + int(n)
	// The capacity ends with the body, so that an append to it cannot reach the next record.
	body := b[RecordHeaderLen:end:end]
	if t != Data {
		switch {
		case n != bodyLengths[t]:
			return r.fail(ErrBodyLength)
		case t == CloseSlot && ParseClose(body) > ProtocolError:
			return r.fail(ErrCloseReason)
		case t == LifecycleSlot && Lifecycle(body[8]) > Cancel:
			return r.fail(ErrLifecycle)
		}
	}
	rec.Type = t
	rec.Slot = SlotID(binary.BigEndian.Uint32(b[1:]))
	rec.FrameSeq = binary.BigEndian.Uint32(b[5:])
	rec.Body = body
	r.off += end
	r.read++
	return true
}

// fail ends the walk.
func (r *Records) fail(cause error) bool {
	r.err = fmt.Errorf("reading record %d of %d of a batch, at byte %d of %d: %w", r.read, r.count, r.off, len(r.batch), cause)
	r.batch, r.off, r.count = nil, 0, r.read
	return false
}

// Err is the fault at which the walk ended, nil if the batch was good.
func (r *Records) Err() error { return r.err }

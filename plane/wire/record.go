// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
)

const (
	// RecordHeaderLen is the length in bytes of a record without its body.
	RecordHeaderLen = 13
	// MaxIndex bounds slot indices: a receiver refuses an index of MaxIndex or above.
	MaxIndex = 65536
)

// SlotID is a stream's place on the connection to a peer: a 24-bit index, and the
// generation that tells the streams apart that used it one after another.
type SlotID uint32

// MakeSlotID joins the two. It panics if the index has more than 24 bits: the id would
// be another stream's.
func MakeSlotID(index uint32, generation uint8) SlotID {
	if index >= 1<<24 {
		panic(fmt.Sprintf("wire: slot index %d has more than 24 bits", index))
	}
	return SlotID(index<<8 | uint32(generation))
}

// Index is where receivers look the slot up.
func (s SlotID) Index() uint32 { return uint32(s) >> 8 }

// Generation grows by 1 modulo 256 each time the index is freed.
func (s SlotID) Generation() uint8 { return uint8(s) }

// RecordType says what a record's body is and whose slot table is meant: the owner opened
// the slot and sends the data, the receiver is at the other end.
type RecordType uint8

const (
	Data          RecordType = iota // owner: one stream frame
	OpenSlot                        // owner: ParseOpen
	CloseSlot                       // both, by the reason: ParseClose
	CreditUpdate                    // receiver: ParseCredit
	SlotHeartbeat                   // owner: empty; counts as a Heartbeat frame
	LifecycleSlot                   // receiver, V2 only: ParseLifecycle
)

var recordTypes = [...]string{"data", "open_slot", "close_slot", "credit_update", "slot_heartbeat", "lifecycle"}

// String is the word of the metrics' record_type label.
func (t RecordType) String() string { return word(recordTypes[:], t) }

// Control says that the record is about a slot, not a part of its stream.
func (t RecordType) Control() bool { return t != Data && t != SlotHeartbeat }

// Record is one record of a batch. Body is a view into the batch.
type Record struct {
	Type     RecordType
	Slot     SlotID
	FrameSeq uint32 // of the owner's records in their slot; 0 in the receiver's
	Body     []byte
}

// AppendRecordHeader appends the header of a record whose body of that many bytes follows.
func AppendRecordHeader(dst []byte, t RecordType, slot SlotID, seq uint32, body int) []byte {
	var b [RecordHeaderLen]byte
	b[0] = byte(t)
	binary.BigEndian.PutUint32(b[1:], uint32(slot))
	binary.BigEndian.PutUint32(b[5:], seq)
	binary.BigEndian.PutUint32(b[9:], uint32(body))
	return append(dst, b[:]...)
}

// AppendRecord appends a record with its body.
func AppendRecord(dst []byte, r *Record) []byte {
	return append(AppendRecordHeader(dst, r.Type, r.Slot, r.FrameSeq, len(r.Body)), r.Body...)
}

// AppendOpen appends the record that opens a slot for the session that was agreed on for
// the anchor (its id with MPSCBit). The slot's first Data has the sequence seq+1.
func AppendOpen(dst []byte, slot SlotID, seq uint32, anchor, session uint64) []byte {
	dst = AppendRecordHeader(dst, OpenSlot, slot, seq, 16)
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, anchor), session)
}

// ParseOpen reads the body of an OpenSlot that Records has delivered.
func ParseOpen(body []byte) (anchor, session uint64) {
	return binary.BigEndian.Uint64(body), binary.BigEndian.Uint64(body[8:])
}

// CloseReason says why a slot ends.
type CloseReason uint8

const (
	TerminalSent  CloseReason = iota // owner: the terminal was the record before
	PeerGone                         // owner: the producer went without a terminal
	UnknownSlot                      // receiver: nobody waits for this stream (any more)
	ProtocolError                    // receiver: credit overspent, hold overflow, bad index, collision
)

var closeReasons = [...]string{"terminal_sent", "peer_gone", "unknown_slot", "protocol_error"}

func (r CloseReason) String() string { return word(closeReasons[:], r) }

// FromOwner says that the slot's owner closed it; else its receiver did.
func (r CloseReason) FromOwner() bool { return r <= PeerGone }

// AppendClose appends the record that closes a slot; seq is 0 if the reason is the receiver's.
func AppendClose(dst []byte, slot SlotID, seq uint32, reason CloseReason) []byte {
	return append(AppendRecordHeader(dst, CloseSlot, slot, seq, 1), byte(reason))
}

// ParseClose reads the body of a CloseSlot that Records has delivered.
func ParseClose(body []byte) CloseReason { return CloseReason(body[0]) }

// AppendCredit appends the record that grants the slot's owner delta more records.
func AppendCredit(dst []byte, slot SlotID, delta uint32) []byte {
	return binary.BigEndian.AppendUint32(AppendRecordHeader(dst, CreditUpdate, slot, 0, 4), delta)
}

// ParseCredit reads the body of a CreditUpdate that Records has delivered.
func ParseCredit(body []byte) (delta uint32) { return binary.BigEndian.Uint32(body) }

// Lifecycle is what a consumer asks of its producer through a V2 mux.
type Lifecycle uint8

const (
	Stop   Lifecycle = iota // finish: the slot stays for the rest and the terminal
	Cancel                  // end now: the receiver has already forgotten the slot
)

var lifecycles = [...]string{"stop", "cancel"}

func (l Lifecycle) String() string { return word(lifecycles[:], l) }

// AppendLifecycle appends the request for the slot's session. A V1 peer would skip the
// rest of the batch: never send it one.
func AppendLifecycle(dst []byte, slot SlotID, session uint64, action Lifecycle) []byte {
	dst = AppendRecordHeader(dst, LifecycleSlot, slot, 0, 9)
	return append(binary.BigEndian.AppendUint64(dst, session), byte(action))
}

// ParseLifecycle reads the body of a LifecycleSlot that Records has delivered.
func ParseLifecycle(body []byte) (session uint64, action Lifecycle) {
	return binary.BigEndian.Uint64(body), Lifecycle(body[8])
}

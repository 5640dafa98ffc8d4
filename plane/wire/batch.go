// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

const (
	// BatchHeaderLen is the length in bytes of what every batch begins with.
	BatchHeaderLen = 16
	// MaxRecords bounds the records of a batch: its count has 16 bits.
	MaxRecords = math.MaxUint16

	// KeyV1 and KeyV2 are the transport keys by which nodes agree on a version of the
	// mux; KeyTCPStream is the path of streams without one.
	KeyV1        = "messenger-mux-v1"
	KeyV2        = "messenger-mux-v2"
	KeyTCPStream = "tcp-stream"

	// BatchHandler takes batches, as fire-and-forget messages, in both directions.
	BatchHandler = "_stream_batch"
)

// Version is the version of the mux that a batch is written in.
type Version uint8

const (
	V1 Version = 1
	V2 Version = 2 // V1 and LifecycleSlot records
)

// VersionOf is the version that a transport key names; false if the key is not the mux's.
func VersionOf(key string) (Version, bool) {
	switch key {
	case KeyV1:
		return V1, true
	case KeyV2:
		return V2, true
	}
	return 0, false
}

// Key is the transport key of the version, empty if there is none.
func (v Version) Key() string {
	switch v {
	case V1:
		return KeyV1
	case V2:
		return KeyV2
	}
	return ""
}

// BatchHeader is the first BatchHeaderLen bytes of a batch.
type BatchHeader struct {
	Version Version
	Flags   uint8 // the low 4 bits are the lane; a node of one lane writes 0 and ignores it
	Count   uint16
	Epoch   uint64 // of the sender's batches to this peer; a higher one retires all its slots
	Seq     uint32 // of the batch in its epoch, from 0; a meter only
}

// AppendBatchHeader appends a header; PutBatchHeader can complete it when the count is known.
func AppendBatchHeader(dst []byte, h BatchHeader) []byte {
	var b [BatchHeaderLen]byte
	PutBatchHeader(b[:], h)
	return append(dst, b[:]...)
}

// PutBatchHeader writes a header over the first BatchHeaderLen bytes of b.
func PutBatchHeader(b []byte, h BatchHeader) {
	_ = b[BatchHeaderLen-1]
	b[0], b[1] = byte(h.Version), h.Flags
	binary.BigEndian.PutUint16(b[2:], h.Count)
	binary.BigEndian.PutUint64(b[4:], h.Epoch)
	binary.BigEndian.PutUint32(b[12:], h.Seq)
}

// ParseBatchHeader reads the header at the start of b. Only too few bytes are an error:
// the epoch of a batch counts even if its version is not ours.
func ParseBatchHeader(b []byte) (BatchHeader, error) {
	if len(b) < BatchHeaderLen {
		return BatchHeader{}, fmt.Errorf("reading a batch of %d bytes: %w, want %d", len(b), ErrShort, BatchHeaderLen)
	}
	return BatchHeader{
		Version: Version(b[0]),
		Flags:   b[1],
		Count:   binary.BigEndian.Uint16(b[2:]),
		Epoch:   binary.BigEndian.Uint64(b[4:]),
		Seq:     binary.BigEndian.Uint32(b[12:]),
	}, nil
}

// SeqNewer says whether batch sequence a comes after b, modulo 2^32.
func SeqNewer(a, b uint32) bool { return int32(a-b) > 0 }

// SeqGap is how many batches are missing when got comes where expected should have,
// through the wrap. It means nothing if got is not the newer.
func SeqGap(expected, got uint32) uint32 { return got - expected }

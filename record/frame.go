// SPDX-License-Identifier: Apache-2.0

package record

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"time"
)

// MaxPayload is how many bytes a snapshot may have.
const MaxPayload = 4 << 20

// A frame is a header and a payload. Numbers are little-endian:
//
//	 0  8  magic
//	 8  2  version, 1
//	10  2  length of the header, 56
//	12  4  length of the payload, at most MaxPayload
//	16  8  sequence number, from 1
//	24  8  wall clock, ns since 1970
//	32  8  CLOCK_BOOTTIME, ns
//	40  8  which boot: FNV-1a of its id
//	48  4  CRC32C of the payload
//	52  4  CRC32C of the header before it
//
// The header's checksum covers the payload's, thus all. A later writer may make
// the header longer: its checksum stays the last 4 bytes, what is between is skipped.
const (
	version   = 1
	headerLen = 56
	maxHeader = 256
	maxFrame  = maxHeader + MaxPayload
)

// magic starts a frame. It is no text and no start of a compressed file.
var magic = []byte("\x89velorec")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Snapshot is one that was appended. Payload is valid only until the function
// that was handed it returns: clone it to keep it.
type Snapshot struct {
	Sequence  uint64        // from 1, in the order of appending, over restarts
	Time      time.Time     // by the wall clock, which may have jumped
	Boot      uint64        // differs between two boots of the host; 0 where they cannot be told apart
	SinceBoot time.Duration // since the host started, suspension included
	Payload   []byte
}

// appendFrame appends the frame of s to b.
func appendFrame(b []byte, s Snapshot) []byte {
	start := len(b)
	le := binary.LittleEndian
	b = append(b, magic...)
	b = le.AppendUint16(b, version)
	b = le.AppendUint16(b, headerLen)
	b = le.AppendUint32(b, uint32(len(s.Payload)))
	b = le.AppendUint64(b, s.Sequence)
	b = le.AppendUint64(b, uint64(s.Time.UnixNano()))
	b = le.AppendUint64(b, uint64(s.SinceBoot))
	b = le.AppendUint64(b, s.Boot)
	b = le.AppendUint32(b, crc32.Checksum(s.Payload, castagnoli))
	b = le.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
	return append(b, s.Payload...)
}

// header is what the start of a frame says of its size.
type header struct{ length, payload int }

// parseHeader reads the first headerLen bytes of a frame, or reports false where
// they start none.
func parseHeader(b []byte) (header, bool) {
	le := binary.LittleEndian
	if !bytes.HasPrefix(b, magic) || le.Uint16(b[8:]) != version {
		return header{}, false
	}
	h, payload := int(le.Uint16(b[10:])), le.Uint32(b[12:])
	if h < headerLen || h > maxHeader || payload > MaxPayload {
		return header{}, false
	}
	return header{h, int(payload)}, true
}

// intact reports whether the header's checksum is right; b is all of the header.
func (h header) intact(b []byte) bool {
	end := h.length - 4
	return crc32.Checksum(b[:end], castagnoli) == binary.LittleEndian.Uint32(b[end:])
}

// snapshot reads a whole frame, or reports false where the payload's checksum is
// wrong. The payload is a part of b.
func (h header) snapshot(b []byte) (Snapshot, bool) {
	le := binary.LittleEndian
	payload := b[h.length:]
	return Snapshot{
		Sequence:  le.Uint64(b[16:]),
		Time:      time.Unix(0, int64(le.Uint64(b[24:]))),
		SinceBoot: time.Duration(le.Uint64(b[32:])),
		Boot:      le.Uint64(b[40:]),
		Payload:   payload,
	}, crc32.Checksum(payload, castagnoli) == le.Uint32(b[48:])
}

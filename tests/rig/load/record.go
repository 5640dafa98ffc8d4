// SPDX-License-Identifier: Apache-2.0

// Package load is what the carriers move: records, the account of what arrived, and
// clock and histogram for both.
package load

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// A record (tests/interop/README.md) is the stream's number, the record's sequence number
// and a filling. Paced, the filling begins with the time of the hand-in.
const (
	header = 16
	stamp  = 24
)

// Longest is the size that no record exceeds, in bytes.
const Longest = 64 << 10

// ramp holds the filling of every record, at an offset of 0 to 255.
var ramp = func() []byte {
	b := make([]byte, Longest+256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}()

func filling(stream, sequence uint64, from, to int) []byte {
	shift := int(byte(stream)*31 + byte(sequence)*7)
	return ramp[shift+from : shift+to]
}

// Fill makes b a record. stamped: it says when.
func Fill(b []byte, stream, sequence uint64, stamped bool) {
	binary.BigEndian.PutUint64(b, stream)
	binary.BigEndian.PutUint64(b[8:], sequence)
	from := header
	if stamped {
		binary.BigEndian.PutUint64(b[header:], uint64(Now()))
		from = stamp
	}
	copy(b[from:], filling(stream, sequence, from, len(b)))
}

// check says what is wrong with a record; handed is the time of its hand-in, 0 without a
// stamp.
func check(b []byte, size int, stream, sequence uint64, stamped bool) (handed int64, err error) {
	if len(b) != size {
		return 0, fmt.Errorf("stream %d: a record of %d bytes, not %d", stream, len(b), size)
	}
	if s, n := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]); s != stream || n != sequence {
		return 0, fmt.Errorf("stream %d: record %d of stream %d where its record %d was due", stream, n, s, sequence)
	}
	from := header
	if stamped {
		handed = int64(binary.BigEndian.Uint64(b[header:]))
		from = stamp
	}
	if !bytes.Equal(b[from:], filling(stream, sequence, from, size)) {
		return 0, fmt.Errorf("stream %d, record %d: its content is wrong", stream, sequence)
	}
	return handed, nil
}

// Check says what is wrong with a record without a stamp.
func Check(b []byte, size int, stream, sequence uint64) error {
	_, err := check(b, size, stream, sequence, false)
	return err
}

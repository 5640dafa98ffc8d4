// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/tinylib/msgp/msgp"
)

var errUTF8 = errors.New("text that is not UTF-8")

// readText reads a str, or a bin as velo's reader does, that is UTF-8. The text is a
// view into b.
func readText(b []byte) (text, rest []byte, err error) {
	text, rest, err = msgp.ReadMapKeyZC(b)
	if err == nil && !utf8.Valid(text) {
		err = errUTF8
	}
	return text, rest, err
}

// readBytes reads a bin as a view into b, or an array of integers as a copy: the two
// forms in which Rust nodes write bytes.
func readBytes(b []byte) (data, rest []byte, err error) {
	if msgp.NextType(b) == msgp.BinType {
		return msgp.ReadBytesZC(b)
	}
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return nil, nil, err
	}
	// Each integer takes a byte at least, so the input bounds the allocation.
	if uint64(n) > uint64(len(rest)) {
		return nil, nil, fmt.Errorf("an array of %d in %d bytes: %w", n, len(rest), msgp.ErrShortBytes)
	}
	data = make([]byte, n)
	for i := range data {
		if data[i], rest, err = msgp.ReadUint8Bytes(rest); err != nil {
			return nil, nil, err
		}
	}
	return data, rest, nil
}

// appendInts appends b as an array of integers, the form of a Rust Vec<u8>.
func appendInts(dst, b []byte) []byte {
	dst = msgp.AppendArrayHeader(dst, uint32(len(b)))
	for _, c := range b {
		dst = msgp.AppendUint8(dst, c)
	}
	return dst
}

// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

const (
	responseFixed = 16 + 1 + 2
	ackLen        = 1 + 16

	ackEvent, ackError = 1 << 0, 1 << 1
)

// ResponseHeader is the header of a Response frame: the id of the message that is
// answered, and whether the payload is its result or the error's text. Headers is a view.
type ResponseHeader struct {
	ID      ResponseID
	OK      bool
	Headers []byte
}

// AppendResponseHeader appends the header of a Response frame. On an error dst is
// returned as it was.
func AppendResponseHeader(dst []byte, h ResponseHeader) ([]byte, error) {
	if len(h.Headers) > math.MaxUint16 {
		return dst, fmt.Errorf("writing a response header: %w: %d bytes of headers, at most %d", ErrHeader, len(h.Headers), math.MaxUint16)
	}
	dst = append(dst, h.ID[:]...)
	if h.OK {
		dst = append(dst, 0)
	} else {
		dst = append(dst, 1)
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(h.Headers)))
	return append(dst, h.Headers...), nil
}

// ParseResponseHeader reads the header of a Response frame.
func ParseResponseHeader(b []byte) (ResponseHeader, error) {
	if len(b) < responseFixed {
		return ResponseHeader{}, fmt.Errorf("reading a response header of %d bytes: %w: %w, want %d", len(b), ErrHeader, ErrShort, responseFixed)
	}
	// velo bounds these headers by their length field alone.
	headers, err := parseHeaders(b[17:], math.MaxUint16)
	if err != nil {
		return ResponseHeader{}, fmt.Errorf("reading a response header: %w: %w", ErrHeader, err)
	}
	return ResponseHeader{ID: ResponseID(b[:16]), OK: b[16] == 0, Headers: headers}, nil
}

// AckHeader is the header of an Ack or Event frame. If it is not OK the payload is the
// error's text.
type AckHeader struct {
	ID        ResponseID
	Event, OK bool
}

// AppendAckHeader appends the header of an Ack or Event frame.
func AppendAckHeader(dst []byte, h AckHeader) []byte {
	var flags byte
	if h.Event {
		flags |= ackEvent
	}
	if !h.OK {
		flags |= ackError
	}
	return append(append(dst, flags), h.ID[:]...)
}

// ParseAckHeader reads the header of an Ack or Event frame: 17 bytes, no other flag.
func ParseAckHeader(b []byte) (AckHeader, error) {
	if len(b) != ackLen || b[0]&^(ackEvent|ackError) != 0 {
		return AckHeader{}, fmt.Errorf("reading an ack header of %d bytes: %w: want %d bytes and no flag but the lowest two", len(b), ErrHeader, ackLen)
	}
	return AckHeader{ID: ResponseID(b[1:]), Event: b[0]&ackEvent != 0, OK: b[0]&ackError == 0}, nil
}

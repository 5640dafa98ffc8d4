// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

const (
	messageSchema = 1
	// messageFixed is a message header without the handler's name and the headers.
	messageFixed = 1 + 1 + 16 + 2 + 2
)

// ErrHeader is the cause of every error about a message, response or ack header. Such a
// frame is dropped and counted, nothing is answered, the connection stays open.
var ErrHeader = errors.New("malformed header")

// Kind says what a message's sender waits for.
type Kind uint8

const (
	FireAndForget Kind = iota // nothing
	AckNack                   // an Ack frame
	Unary                     // a Response frame, or an Ack frame with an error
)

var kinds = [...]string{"fire_and_forget", "ack_nack", "unary"}

// String is the word of the metrics' response_type label.
func (k Kind) String() string { return word(kinds[:], k) }

// ResponseID travels with a message and comes back with its answer. Its first half is
// the sender's worker, by which the receiver knows its peer; the rest is the sender's own affair.
type ResponseID [16]byte

// NewResponseID makes the id of a call that waits in a slot; of generation the low 48
// bits are used.
func NewResponseID(w WorkerID, slot uint16, generation uint64) (id ResponseID) {
	binary.LittleEndian.PutUint64(id[0:], uint64(w))
	binary.LittleEndian.PutUint16(id[8:], slot)
	binary.LittleEndian.PutUint32(id[10:], uint32(generation))
	binary.LittleEndian.PutUint16(id[14:], uint16(generation>>32))
	return id
}

// Worker is the node that sent the message.
func (id ResponseID) Worker() WorkerID { return WorkerID(binary.LittleEndian.Uint64(id[0:])) }

// Slot is where the call waits at its sender.
func (id ResponseID) Slot() uint16 { return binary.LittleEndian.Uint16(id[8:]) }

// Generation tells the calls apart that used one slot after another.
func (id ResponseID) Generation() uint64 {
	return uint64(binary.LittleEndian.Uint32(id[10:])) | uint64(binary.LittleEndian.Uint16(id[14:]))<<32
}

// MessageHeader is the header of a Message frame. Handler and Headers are views into
// what was parsed; Headers is nil where the sender gave none.
type MessageHeader struct {
	Kind    Kind
	ID      ResponseID
	Handler []byte // UTF-8, never empty
	Headers []byte // a msgpack map of str to str, for LookupHeader
}

// AppendMessageHeader appends the header of a Message frame. headers is what
// AppendHeaders wrote, or nil. On an error dst is returned as it was.
func AppendMessageHeader(dst []byte, kind Kind, id ResponseID, handler string, headers []byte) ([]byte, error) {
	switch {
	case kind > Unary:
		return dst, fmt.Errorf("writing a message header: %w: kind %d", ErrHeader, kind)
	case handler == "" || len(handler) > math.MaxUint16 || !utf8.ValidString(handler):
		return dst, fmt.Errorf("writing a message header: %w: a handler name of %d bytes; want 1 to %d of UTF-8", ErrHeader, len(handler), math.MaxUint16)
	case len(headers) > maxHeaders:
		return dst, fmt.Errorf("writing a message header: %w: %d bytes of headers, at most %d", ErrHeader, len(headers), maxHeaders)
	}
	dst = append(dst, messageSchema, byte(kind))
	dst = append(dst, id[:]...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(handler)))
	dst = append(dst, handler...)
	dst = binary.LittleEndian.AppendUint16(dst, uint16(len(headers)))
	return append(dst, headers...), nil
}

// ParseMessageHeader reads the header of a Message frame (or the copy of one in a
// ShuttingDown frame) and checks all of it.
func ParseMessageHeader(b []byte) (MessageHeader, error) {
	if len(b) < messageFixed {
		return MessageHeader{}, fmt.Errorf("reading a message header of %d bytes: %w: %w, want %d", len(b), ErrHeader, ErrShort, messageFixed)
	}
	if b[0] != messageSchema {
		return MessageHeader{}, fmt.Errorf("reading a message header: %w: %w %d, want %d", ErrHeader, ErrVersion, b[0], messageSchema)
	}
	h := MessageHeader{Kind: Kind(b[1]), ID: ResponseID(b[2:18])}
	if h.Kind > Unary {
		return MessageHeader{}, fmt.Errorf("reading a message header: %w: kind %d", ErrHeader, b[1])
	}
	n, rest := int(binary.LittleEndian.Uint16(b[18:])), b[20:]
	if n == 0 || len(rest) < n+2 {
		return MessageHeader{}, fmt.Errorf("reading a message header: %w: a handler name of %d bytes with %d left", ErrHeader, n, len(rest))
	}
	h.Handler, rest = rest[:n:n], rest[n:]
	if !utf8.Valid(h.Handler) {
		return MessageHeader{}, fmt.Errorf("reading a message header: %w: a handler name that is not UTF-8", ErrHeader)
	}
	var err error
	if h.Headers, err = parseHeaders(rest, maxHeaders); err != nil {
		return MessageHeader{}, fmt.Errorf("reading a message header: %w: %w", ErrHeader, err)
	}
	return h, nil
}

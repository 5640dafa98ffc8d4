// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

const (
	// PreambleLen is the length in bytes of what every frame begins with.
	PreambleLen = 11
	// MaxFrame bounds header and payload together, in bytes, the preamble not counted.
	MaxFrame = 16 << 20

	frameVersion = 1
)

// After any of these the stream of frames cannot be followed further: the connection
// must be closed, with no answer.
var (
	// ErrVersion: a version that we do not speak.
	ErrVersion = errors.New("unknown version")
	// ErrFrameType: a frame of a type that does not exist.
	ErrFrameType = errors.New("unknown frame type")
	// ErrFrameSize: header and payload are longer than MaxFrame.
	ErrFrameSize = errors.New("frame too large")
)

// ErrShort: the input ends before the fixed part that it must have.
var ErrShort = errors.New("too short")

// FrameType says what a frame's header is and who gets it.
type FrameType uint8

const (
	Message      FrameType = iota // MessageHeader, the handler's input
	Response                      // ResponseHeader, the result or the error's text
	Ack                           // AckHeader, nothing or the error's text
	Event                         // AckHeader with the event bit
	ShuttingDown                  // the header of the refused Message, copied; no payload
)

var frameTypes = [...]string{"message", "response", "ack", "event", "shutting_down"}

// String is the word of the metrics' message_type label.
func (t FrameType) String() string { return word(frameTypes[:], t) }

// word is the name of an enumeration's value, or its number where it has none.
func word[T ~uint8](words []string, v T) string {
	if int(v) < len(words) {
		return words[v]
	}
	return fmt.Sprintf("unknown(%d)", uint8(v))
}

// Preamble is the first PreambleLen bytes of a frame; Header and Payload are the lengths
// in bytes of what follows, in this order.
type Preamble struct {
	Type            FrameType
	Header, Payload int
}

// CheckFrame says whether a frame of these lengths may be sent.
func CheckFrame(header, payload int) error {
	if size := uint64(header) + uint64(payload); header < 0 || payload < 0 || size > MaxFrame {
		return fmt.Errorf("framing %d header and %d payload bytes: %w: at most %d together; send smaller records", header, payload, ErrFrameSize, MaxFrame)
	}
	return nil
}

// AppendPreamble appends a preamble. The caller has checked the lengths with CheckFrame.
func AppendPreamble(dst []byte, t FrameType, header, payload int) []byte {
	var b [PreambleLen]byte
	binary.BigEndian.PutUint16(b[0:], frameVersion)
	b[2] = byte(t)
	binary.BigEndian.PutUint32(b[3:], uint32(header))
	binary.BigEndian.PutUint32(b[7:], uint32(payload))
	return append(dst, b[:]...)
}

// ParsePreamble reads the preamble at the start of b, which must hold at least
// PreambleLen bytes.
func ParsePreamble(b []byte) (Preamble, error) {
	if len(b) < PreambleLen {
		return Preamble{}, fmt.Errorf("reading a frame preamble of %d bytes: %w, want %d", len(b), ErrShort, PreambleLen)
	}
	if v := binary.BigEndian.Uint16(b); v != frameVersion {
		return Preamble{}, fmt.Errorf("reading a frame preamble: %w %d, want %d; the peer does not speak velo's protocol here", ErrVersion, v, frameVersion)
	}
	t := FrameType(b[2])
	if t > ShuttingDown {
		return Preamble{}, fmt.Errorf("reading a frame preamble: %w %d", ErrFrameType, b[2])
	}
	header, payload := binary.BigEndian.Uint32(b[3:]), binary.BigEndian.Uint32(b[7:])
	if uint64(header)+uint64(payload) > MaxFrame {
		return Preamble{}, fmt.Errorf("reading a frame preamble: %w: %d header and %d payload bytes, at most %d together", ErrFrameSize, header, payload, MaxFrame)
	}
	return Preamble{Type: t, Header: int(header), Payload: int(payload)}, nil
}

// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"github.com/google/uuid"
	"github.com/tinylib/msgp/msgp"
	"github.com/zeebo/xxh3"
)

// MPSCBit in the low half of a handle says that its anchor takes many senders.
const MPSCBit = 1 << 63

// InstanceID names one run of a node: a UUID v4 in RFC 4122 (printed) order, drawn
// anew at each start.
type InstanceID [16]byte

// WorkerID is what messages and handles carry in place of an InstanceID: the XXH3-64
// of its 16 bytes. It is never 0.
type WorkerID uint64

// NewInstanceID draws an id. An id whose worker would be 0 is drawn again, as velo does.
func NewInstanceID() InstanceID {
	for {
		if id := InstanceID(uuid.New()); id.Worker() != 0 {
			return id
		}
	}
}

// ParseInstanceID reads the hyphenated form, 36 characters in either case.
func ParseInstanceID(s string) (InstanceID, error) {
	// uuid.Parse also takes braces, a URN and bare digits; no velo node writes those.
	if len(s) != 36 {
		return InstanceID{}, fmt.Errorf("reading an instance id of %d characters: %w: want a hyphenated UUID of 36", len(s), ErrBody)
	}
	u, err := uuid.Parse(s)
	if err != nil {
		return InstanceID{}, fmt.Errorf("reading an instance id: %w: want a hyphenated UUID: %w", ErrBody, err)
	}
	return InstanceID(u), nil
}

// Worker is the id by which peers address this instance.
func (id InstanceID) Worker() WorkerID { return WorkerID(xxh3.Hash(id[:])) }

// String is the lower-case hyphenated form.
func (id InstanceID) String() string { return uuid.UUID(id).String() }

// MarshalText writes the lower-case hyphenated form.
func (id InstanceID) MarshalText() ([]byte, error) { return uuid.UUID(id).MarshalText() }

// UnmarshalText reads what ParseInstanceID reads.
func (id *InstanceID) UnmarshalText(b []byte) error {
	parsed, err := ParseInstanceID(string(b))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// Handle names an anchor (Hi: the consumer, Lo: the anchor's id there, with MPSCBit) or
// where to cancel a stream (Hi: the producer, Lo: its stream id).
type Handle struct {
	Hi WorkerID `json:"hi"`
	Lo uint64   `json:"lo"`
}

// MPSC says that the anchor takes many senders.
func (h Handle) MPSC() bool { return h.Lo&MPSCBit != 0 }

// String prints as velo prints an anchor's handle, in the reasons of attach errors too.
func (h Handle) String() string {
	kind := "spsc"
	if h.MPSC() {
		kind = "mpsc"
	}
	return fmt.Sprintf("StreamAnchorHandle(worker=%d, local=%d, kind=%s)", h.Hi, h.Lo&^MPSCBit, kind)
}

// UnmarshalJSON reads {"hi":…,"lo":…}; both are required and must be integers.
func (h *Handle) UnmarshalJSON(b []byte) error {
	type plain Handle
	return decode("handle", b, (*plain)(h), "hi", "lo")
}

// AppendMsgpack appends the handle as an array of two integers, each in its shortest form.
func (h Handle) AppendMsgpack(dst []byte) []byte {
	dst = msgp.AppendArrayHeader(dst, 2)
	dst = msgp.AppendUint64(dst, uint64(h.Hi))
	return msgp.AppendUint64(dst, h.Lo)
}

// ParseHandleMsgpack reads what AppendMsgpack wrote, from the start of b, and returns
// the bytes that follow it.
func ParseHandleMsgpack(b []byte) (h Handle, rest []byte, err error) {
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err == nil && n != 2 {
		err = fmt.Errorf("an array of %d, want 2", n)
	}
	var hi uint64
	if err == nil {
		hi, rest, err = msgp.ReadUint64Bytes(rest)
	}
	if err == nil {
		h.Lo, rest, err = msgp.ReadUint64Bytes(rest)
	}
	if err != nil {
		return Handle{}, nil, fmt.Errorf("reading a msgpack handle: %w: %w", ErrBody, err)
	}
	h.Hi = WorkerID(hi)
	return h, rest, nil
}

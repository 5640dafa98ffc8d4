// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/tinylib/msgp/msgp"
)

// ErrStreamFrame is the cause of every error about a stream frame or its item. It ends
// the stream of an SPSC anchor.
var ErrStreamFrame = errors.New("malformed stream frame")

// FrameKind says what a stream frame is.
type FrameKind uint8

const (
	Item           FrameKind = iota
	SenderError              // an error of the sender's application; the stream goes on
	TransportError           // terminal
	Dropped                  // terminal: the sender went without a word
	Detached                 // terminal for the sender; an SPSC anchor may be attached again
	Finalized                // terminal
	Heartbeat                // shows life, is not handed to the consumer
)

var frameKinds = [...]string{"item", "sender_error", "transport_error", "dropped", "detached", "finalized", "heartbeat"}

func (k FrameKind) String() string { return word(frameKinds[:], k) }

const (
	itemPrefix      = "\x81\xa4Item"
	droppedFrame    = "\xa7Dropped"
	detachedFrame   = "\xa8Detached"
	finalizedFrame  = "\xa9Finalized"
	heartbeatFrame  = "\xa9Heartbeat"
	senderErrorName = "SenderError"
	transportName   = "TransportError"
)

// The frames without a body, exactly as they must be on the wire: terminals are
// recognised by their bytes. They are shared: do not write to them.
var (
	FrameDropped   = []byte(droppedFrame)
	FrameDetached  = []byte(detachedFrame)
	FrameFinalized = []byte(finalizedFrame)
	FrameHeartbeat = []byte(heartbeatFrame)
)

// variants are the kinds by the index that Rust's enumeration gives them.
var variants = [...]FrameKind{Item, SenderError, Dropped, Detached, Finalized, Heartbeat, TransportError}

// AppendItem appends an item whose msgpack the caller has made.
func AppendItem(dst, msgpackBody []byte) []byte {
	return append(append(dst, itemPrefix...), msgpackBody...)
}

// AppendItemBytes appends b as an item of msgpack bin, which is what a Rust stream of
// Bytes carries.
func AppendItemBytes(dst, b []byte) []byte {
	return msgp.AppendBytes(append(dst, itemPrefix...), b)
}

// ItemBytesLen is the length in bytes of the frame that AppendItemBytes makes of n bytes.
func ItemBytesLen(n int) int {
	switch {
	case n <= math.MaxUint8:
		return len(itemPrefix) + 2 + n
	case n <= math.MaxUint16:
		return len(itemPrefix) + 3 + n
	}
	return len(itemPrefix) + 5 + n
}

// AppendError appends a SenderError or a TransportError, the two kinds that have a text,
// and panics for any other. What is not UTF-8 in the text is replaced, as Rust refuses it.
func AppendError(dst []byte, kind FrameKind, text string) []byte {
	var name string
	switch kind {
	case SenderError:
		name = senderErrorName
	case TransportError:
		name = transportName
	default:
		panic(fmt.Sprintf("wire: a %s frame has no text", kind))
	}
	dst = msgp.AppendString(msgp.AppendMapHeader(dst, 1), name)
	return msgp.AppendString(dst, strings.ToValidUTF8(text, "\uFFFD"))
}

// ParseStreamFrame reads one frame. body is a view: an item's msgpack, which is not
// looked into, or the text of an error. It accepts what velo's reader accepts beyond the
// canonical bytes: variants by index, longer forms of the names, and bytes after the frame.
func ParseStreamFrame(b []byte) (kind FrameKind, body []byte, err error) {
	if len(b) > len(itemPrefix) && string(b[:len(itemPrefix)]) == itemPrefix {
		return Item, b[len(itemPrefix):], nil
	}
	switch string(b) {
	case droppedFrame:
		return Dropped, nil, nil
	case detachedFrame:
		return Detached, nil, nil
	case finalizedFrame:
		return Finalized, nil, nil
	case heartbeatFrame:
		return Heartbeat, nil, nil
	}
	kind, body, err = parseOther(b)
	if err != nil {
		return 0, nil, fmt.Errorf("reading a stream frame of %d bytes: %w: %w", len(b), ErrStreamFrame, err)
	}
	return kind, body, nil
}

// parseOther reads a frame with an error's text, or one that is not canonical.
func parseOther(b []byte) (kind FrameKind, body []byte, err error) {
	rest, inMap := b, msgp.NextType(b) == msgp.MapType
	if inMap {
		var n uint32
		if n, rest, err = msgp.ReadMapHeaderBytes(b); err != nil {
			return 0, nil, err
		}
		if n != 1 {
			return 0, nil, fmt.Errorf("a map of %d, want 1", n)
		}
	}
	if kind, rest, err = readVariant(rest); err != nil {
		return 0, nil, err
	}
	switch {
	case kind == Item || kind == SenderError || kind == TransportError:
		if !inMap || len(rest) == 0 {
			return 0, nil, fmt.Errorf("a frame of kind %s without a body", kind)
		}
		if kind == Item {
			return kind, rest, nil
		}
		body, _, err = readText(rest)
	case inMap:
		_, err = msgp.ReadNilBytes(rest)
	}
	return kind, body, err
}

// readVariant reads the name or the index of a variant.
func readVariant(b []byte) (FrameKind, []byte, error) {
	if t := msgp.NextType(b); t != msgp.StrType && t != msgp.BinType {
		index, rest, err := msgp.ReadUint64Bytes(b)
		if err == nil && index >= uint64(len(variants)) {
			err = fmt.Errorf("variant %d of %d", index, len(variants))
		}
		if err != nil {
			return 0, nil, err
		}
		return variants[index], rest, nil
	}
	name, rest, err := readText(b)
	if err != nil {
		return 0, nil, err
	}
	switch string(name) {
	case itemPrefix[2:]:
		return Item, rest, nil
	case senderErrorName:
		return SenderError, rest, nil
	case transportName:
		return TransportError, rest, nil
	case droppedFrame[1:]:
		return Dropped, rest, nil
	case detachedFrame[1:]:
		return Detached, rest, nil
	case finalizedFrame[1:]:
		return Finalized, rest, nil
	case heartbeatFrame[1:]:
		return Heartbeat, rest, nil
	}
	return 0, nil, fmt.Errorf("a variant with an unknown name of %d bytes", len(name))
}

// IsTerminal says whether a frame ends its stream and may spend the reserved credit:
// exactly the bytes of FrameDropped, FrameDetached or FrameFinalized, or whatever reads as
// a TransportError. velo's pumps and credit accounting decide the same way.
func IsTerminal(frame []byte) bool {
	if len(frame) > len(itemPrefix) && string(frame[:len(itemPrefix)]) == itemPrefix {
		return false
	}
	switch string(frame) {
	case droppedFrame, detachedFrame, finalizedFrame:
		return true
	}
	kind, _, err := ParseStreamFrame(frame)
	return err == nil && kind == TransportError
}

// ItemBytes reads an item's body as bytes: a view of a bin or str, a copy of an array of
// integers (a Rust Vec<u8>). Bytes after it are ignored.
func ItemBytes(body []byte) (data []byte, err error) {
	if msgp.NextType(body) == msgp.StrType {
		data, _, err = msgp.ReadStringZC(body)
	} else {
		data, _, err = readBytes(body)
	}
	if err != nil {
		return nil, fmt.Errorf("reading an item of %d bytes as bytes: %w: %w", len(body), ErrStreamFrame, err)
	}
	return data, nil
}

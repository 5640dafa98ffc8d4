// SPDX-License-Identifier: Apache-2.0

package privileged

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A frame is its length as 4 bytes, little-endian, and as many bytes of JSON.
const (
	maxRequest = 64 << 10 // what the helper takes from the daemon
	maxReply   = 64 << 20 // what the daemon takes from the helper
)

// ErrFrame: what came is no frame of this protocol.
var ErrFrame = errors.New("not a frame between daemon and helper")

type request struct {
	Verb string          `json:"verb"`
	Body json.RawMessage `json:"body,omitempty"`
}

type reply struct {
	Body  json.RawMessage `json:"body,omitempty"`
	Error string          `json:"error,omitempty"`
	Kind  string          `json:"kind,omitempty"` // of the error, as its owner names it
}

func writeFrame(w io.Writer, v any, limit int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding a frame: %w", err)
	}
	if len(b) > limit {
		return fmt.Errorf("%w: %d bytes, at most %d may be sent", ErrFrame, len(b), limit)
	}
	_, err = w.Write(append(binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b))), b...))
	return err
}

// readFrame fills v. io.EOF means that the other side is gone.
func readFrame(r io.Reader, v any, limit int) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if int64(n) > int64(limit) {
		return fmt.Errorf("%w: %d bytes announced, at most %d are taken", ErrFrame, n, limit)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return fmt.Errorf("%w: cut short: %w", ErrFrame, err)
	}
	if err := strict(b, v); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}

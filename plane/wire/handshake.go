// SPDX-License-Identifier: Apache-2.0

package wire

import "encoding/binary"

// HandshakeLen is the length in bytes of what the dialer of a tcp-stream connection
// writes first. Frames of type Message without a header follow it.
const HandshakeLen = 16

// AppendHandshake appends the pair that routes a tcp-stream connection to its anchor.
func AppendHandshake(dst []byte, anchor, session uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, anchor), session)
}

// ParseHandshake reads that pair.
func ParseHandshake(b [HandshakeLen]byte) (anchor, session uint64) {
	return binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:])
}

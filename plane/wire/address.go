// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/tinylib/msgp/msgp"
	"github.com/zeebo/xxh3"
)

// ErrAddress is the cause of every error about an address or one of its entries.
var ErrAddress = errors.New("malformed address")

// What a peer may say about itself. A node has a few transports and interfaces.
const (
	maxAddress   = 32 << 10 // bytes
	maxEntries   = 64
	maxEndpoints = 1024
)

// Address is where a node can be reached, as it was given: a msgpack map from transport
// key to that transport's entry. Only its bytes are compared and summed, so they are kept.
type Address []byte

// NewAddress makes an address of a node's own entries, keys sorted.
func NewAddress(entries map[string][]byte) Address {
	b := msgp.AppendMapHeader(nil, uint32(len(entries)))
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		// Arrays, not bin: other readers of velo's addresses may take nothing else.
		b = appendInts(msgp.AppendString(b, key), entries[key])
	}
	return b
}

// Entries takes the address apart: at most 64 entries in 32 KiB. Of a key given twice the
// last entry counts. The entries may be views into the address.
func (a Address) Entries() (map[string][]byte, error) {
	if len(a) > maxAddress {
		return nil, fmt.Errorf("reading an address: %w: %d bytes, at most %d", ErrAddress, len(a), maxAddress)
	}
	n, rest, err := msgp.ReadMapHeaderBytes(a)
	if err == nil && n > maxEntries {
		err = fmt.Errorf("%d entries, at most %d", n, maxEntries)
	}
	entries := map[string][]byte{}
	for i := uint32(0); err == nil && i < n; i++ {
		var key, entry []byte
		if key, rest, err = readText(rest); err != nil {
			break
		}
		if entry, rest, err = readBytes(rest); err == nil {
			entries[string(key)] = entry
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading an address: %w: %w", ErrAddress, err)
	}
	return entries, nil
}

// Checksum is the XXH3-64 of the bytes, as discovery files have it.
func (a Address) Checksum() uint64 { return xxh3.Hash(a) }

// MarshalJSON writes the bytes as an array of numbers. Go's base64 would be read by
// velo as the address itself.
func (a Address) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 2+4*len(a))
	b = append(b, '[')
	for i, c := range a {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(c), 10)
	}
	return append(b, ']'), nil
}

// UnmarshalJSON reads an array of numbers, or a string whose UTF-8 bytes are the address.
func (a *Address) UnmarshalJSON(b []byte) error {
	var address []byte
	var err error
	if len(b) > 0 && b[0] == '"' {
		var s string
		err = json.Unmarshal(b, &s)
		address = []byte(s)
	} else {
		err = json.Unmarshal(b, &address)
		// encoding/json reads a null among the numbers as 0.
		if err == nil && bytes.Contains(b, []byte("null")) {
			err = errors.New("null is no byte")
		}
	}
	if err == nil && len(address) > maxAddress {
		err = fmt.Errorf("%d bytes, at most %d", len(address), maxAddress)
	}
	if err != nil {
		return fmt.Errorf("reading a JSON address: %w: %w", ErrAddress, err)
	}
	*a = address
	return nil
}

// PeerInfo is how a node introduces itself.
type PeerInfo struct {
	Instance InstanceID `json:"instance_id"`
	Address  Address    `json:"worker_address"`
}

// UnmarshalJSON reads a PeerInfo; both fields are required.
func (p *PeerInfo) UnmarshalJSON(b []byte) error {
	type plain PeerInfo
	return decode("peer info", b, (*plain)(p), "instance_id", "worker_address")
}

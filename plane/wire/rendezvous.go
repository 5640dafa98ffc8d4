// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"
)

// A payload of more than 256 KiB is sent by a Rust node as an empty one with the header
// HeaderRendezvous; its receiver pulls the payload in chunks.
const (
	// HeaderRendezvous names the header whose value is the payload's DataHandle in decimal.
	HeaderRendezvous = "_rv"

	HandlerAcquire    = "_rv_acquire" // AcquireRequest, EncodeAcquireAnswer
	HandlerPull       = "_rv_pull"    // PullRequest, the chunk's bytes
	HandlerRelease    = "_rv_release" // ReleaseRequest, no answer
	HandlerDetachData = "_rv_detach"  // ReleaseRequest, no answer; the payload stays staged
)

// DataHandle names a staged payload: Hi is its owner, Lo its place there, from 1.
type DataHandle Handle

// String is the value of the HeaderRendezvous header: 128 bits in decimal.
func (h DataHandle) String() string {
	n := new(big.Int).SetUint64(uint64(h.Hi))
	return n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(h.Lo)).String()
}

// ParseDataHandle reads the value of the HeaderRendezvous header.
func ParseDataHandle(s string) (DataHandle, error) {
	const digits = 39 // of 2^128
	n := new(big.Int)
	ok := len(s) <= digits && strings.Trim(s, "0123456789") == "" // SetString takes a sign too
	if ok {
		_, ok = n.SetString(s, 10)
	}
	if !ok || n.BitLen() > 128 {
		return DataHandle{}, fmt.Errorf("reading a data handle of %d characters: %w: want a decimal number of 128 bits", len(s), ErrBody)
	}
	lo := new(big.Int).And(n, new(big.Int).SetUint64(^uint64(0)))
	return DataHandle{Hi: WorkerID(n.Rsh(n, 64).Uint64()), Lo: lo.Uint64()}, nil
}

// UnmarshalJSON reads {"hi":…,"lo":…}; both are required.
func (h *DataHandle) UnmarshalJSON(b []byte) error { return (*Handle)(h).UnmarshalJSON(b) }

// AcquireRequest asks the owner for a lease of a payload.
type AcquireRequest struct {
	Handle DataHandle `json:"handle"`
}

// UnmarshalJSON reads an AcquireRequest; the handle is required, an RDMA offer is ignored.
func (r *AcquireRequest) UnmarshalJSON(b []byte) error {
	type plain AcquireRequest
	return decode("acquire request", b, (*plain)(r), "handle")
}

// AcquireAnswer says how to pull the payload: chunks 0 to ChunkCount-1 of ChunkSize bytes
// each, the last one shorter.
type AcquireAnswer struct {
	LeaseID    uint64 `json:"lease_id"`
	TransferID uint64 `json:"transfer_id"`
	TotalLen   uint64 `json:"total_len"`  // bytes
	ChunkSize  uint32 `json:"chunk_size"` // bytes
	ChunkCount uint32 `json:"chunk_count"`
}

// EncodeAcquireAnswer is the body that grants a lease.
func EncodeAcquireAnswer(a *AcquireAnswer) []byte {
	return encode(struct{ Ready *AcquireAnswer }{a})
}

// ParseAcquireAnswer reads the body that grants a lease to be pulled in chunks, the only
// kind for a node that offers no RDMA. The chunks cover the payload exactly; whether the
// payload is too long is for the caller to say.
func ParseAcquireAnswer(b []byte) (*AcquireAnswer, error) {
	const what = "acquire answer"
	var answer struct{ Ready json.RawMessage }
	if err := decode(what, b, &answer, "Ready"); err != nil {
		return nil, err
	}
	a := new(AcquireAnswer)
	if err := decode(what, answer.Ready, a, "lease_id", "transfer_id", "total_len", "chunk_size", "chunk_count"); err != nil {
		return nil, err
	}
	size, count := uint64(a.ChunkSize), uint64(a.ChunkCount)
	// Both have 32 bits, so the products cannot wrap.
	if a.TotalLen > count*size || count > 0 && (size == 0 || a.TotalLen <= (count-1)*size) {
		return nil, fmt.Errorf("reading the %s: %w: %d chunks of %d bytes do not make %d bytes", what, ErrBody, a.ChunkCount, a.ChunkSize, a.TotalLen)
	}
	return a, nil
}

// PullRequest asks for one chunk.
type PullRequest struct {
	TransferID uint64 `json:"transfer_id"`
	ChunkIndex uint32 `json:"chunk_index"`
}

// UnmarshalJSON reads a PullRequest; both fields are required.
func (r *PullRequest) UnmarshalJSON(b []byte) error {
	type plain PullRequest
	return decode("pull request", b, (*plain)(r), "transfer_id", "chunk_index")
}

// ReleaseRequest gives a lease back.
type ReleaseRequest struct {
	Handle  DataHandle `json:"handle"`
	LeaseID uint64     `json:"lease_id"`
}

// UnmarshalJSON reads a ReleaseRequest; both fields are required.
func (r *ReleaseRequest) UnmarshalJSON(b []byte) error {
	type plain ReleaseRequest
	return decode("release of a lease", b, (*plain)(r), "handle", "lease_id")
}

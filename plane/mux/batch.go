// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"encoding/binary"
	"math"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// batch is a frame in the making: preamble, message header, batch header, records.
type batch struct {
	buf    []byte
	count  int
	alone  bool // a record that is larger than a batch may be: nothing joins it
	grants []grant
	closes []closing
	ends   []*Owner // whose terminals are in it
}

// grant is credit that travels in a batch.
type grant struct {
	slot  *inSlot
	delta uint32
}

// envelope is what every frame of a node's batches begins with.
type envelope []byte

func newEnvelope(w wire.WorkerID) envelope {
	header, err := wire.AppendMessageHeader(nil, wire.FireAndForget, wire.NewResponseID(w, 0, 0), wire.BatchHandler, nil)
	if err != nil {
		panic(err) // the name is a constant
	}
	e := append(wire.AppendPreamble(nil, wire.Message, len(header), 0), header...)
	return wire.AppendBatchHeader(e, wire.BatchHeader{})
}

// begin empties the batch.
func (b *batch) begin(e envelope) {
	b.buf = append(b.buf[:0], e...)
	b.count, b.alone = 0, false
	b.grants, b.closes = b.grants[:0], b.closes[:0]
	clear(b.ends)
	b.ends = b.ends[:0]
}

// records is how many bytes the records take.
func (b *batch) records(e envelope) int { return len(b.buf) - len(e) }

// fits says whether records of n bytes may join.
func (b *batch) fits(e envelope, n, count, limit int) bool {
	return !b.alone && b.count+count <= math.MaxUint16 && wire.BatchHeaderLen+b.records(e)+n <= limit
}

// seal fills in what is known only now, and returns the frame.
func (b *batch) seal(e envelope, h wire.BatchHeader) []byte {
	h.Count = uint16(b.count)
	wire.PutBatchHeader(b.buf[len(e)-wire.BatchHeaderLen:], h)
	binary.BigEndian.PutUint32(b.buf[7:], uint32(len(b.buf)-len(e)+wire.BatchHeaderLen))
	return b.buf
}

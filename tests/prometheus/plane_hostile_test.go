// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/velo-agent/velo-agent/plane"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// hostile sends the frontend batches that break each rule of the protocol, and bytes that
// are of none.
func (p *planes) hostile(t *testing.T, over func(time.Duration, func(context.Context) error)) {
	peer := bare(t)
	known(t, peer, p.frontend.PeerInfo())
	epoch := uint64(1)
	over(time.Second, func(ctx context.Context) error {
		epoch++
		return p.breakRules(ctx, epoch, func(b []byte) error {
			return peer.Fire(ctx, p.frontend.Worker(), wire.BatchHandler, b)
		})
	})
	over(500*time.Millisecond, func(ctx context.Context) error { return garbage(ctx, p.frontend.PeerInfo()) })
}

// batch is a batch of an epoch.
func batch(h wire.BatchHeader, records ...[]byte) []byte {
	h.Version, h.Count = wire.V2, uint16(len(records))
	b := wire.AppendBatchHeader(nil, h)
	for _, r := range records {
		b = append(b, r...)
	}
	return b
}

func data(slot wire.SlotID, seq uint32) []byte {
	return wire.AppendRecord(nil, &wire.Record{Type: wire.Data, Slot: slot, FrameSeq: seq, Body: wire.AppendItemBytes(nil, []byte("token"))})
}

// breakRules begins an epoch with two streams, and breaks one rule after the other.
func (p *planes) breakRules(ctx context.Context, epoch uint64, send func([]byte) error) error {
	var anchors []*plane.Anchor
	defer func() {
		for _, a := range anchors {
			a.Close()
		}
	}()
	slots := []wire.SlotID{wire.MakeSlotID(0, 0), wire.MakeSlotID(1, 0)}
	var opens [][]byte
	for _, slot := range slots {
		a, err := p.frontend.NewAnchor(plane.AnchorOptions{})
		if err != nil {
			return err
		}
		anchors = append(anchors, a)
		ticket, err := a.Ticket(0)
		if err != nil {
			return err
		}
		opens = append(opens, wire.AppendOpen(nil, slot, 0, a.Handle().Lo, ticket.RoutingSessionID))
	}
	// What has no stream: no room is left to tell of them all.
	nobody := make([][]byte, 10_000)
	for i := range nobody {
		nobody[i] = wire.AppendOpen(nil, wire.MakeSlotID(uint32(100+i), 0), 0, 1, 1)
	}
	other, free := wire.MakeSlotID(0, 1), wire.MakeSlotID(7, 0)
	at := func(seq uint32) wire.BatchHeader { return wire.BatchHeader{Epoch: epoch, Seq: seq} }
	whole := batch(at(5), data(slots[0], 2))
	err := errors.Join(
		send(batch(at(0), append(opens, data(slots[0], 1))...)),
		send(batch(at(1), data(slots[0], 1))), // twice
		send(batch(at(2), data(other, 1), wire.AppendOpen(nil, other, 0, 1, 1), data(free, 1))),
		send(batch(wire.BatchHeader{Epoch: epoch, Seq: 3, Flags: 1}, data(slots[0], 2))),
		send(batch(wire.BatchHeader{Epoch: epoch - 1, Seq: 3}, data(slots[0], 2))),
		send(batch(at(3), nobody...)),
		send(batch(at(4), data(slots[1], 5_000))), // without credit
		send(whole[:len(whole)-1]),
		send(batch(at(9), data(slots[0], 3))), // the one before it never comes
	)
	pause(ctx, 3*silence) // until the stream is given up
	return err
}

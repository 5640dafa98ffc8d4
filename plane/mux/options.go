// SPDX-License-Identifier: Apache-2.0

package mux

import (
	"cmp"
	"context"
	"errors"
	"math"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// Defaults of Options; those that velo has too are velo's (reference section 13).
const (
	DefaultWindow     = 32
	DefaultSlotBytes  = 1 << 20
	DefaultPeerBytes  = 8 << 20
	DefaultMaxBatch   = 60 << 10
	DefaultQueueBytes = 256 << 10
	DefaultVisitFloor = 2 * time.Millisecond
	DefaultLinger     = time.Millisecond
	DefaultGather     = 2 * time.Millisecond
	DefaultMaxPeers   = 4096
	DefaultSilence    = 15 * time.Second

	// largestBatch is what a Rust peer takes inline from any sender without staging.
	largestBatch = 256<<10 - 1<<10
	// leastBatch holds one empty record.
	leastBatch = wire.BatchHeaderLen + wire.RecordHeaderLen
)

// Options of a Mux. The zero value of each field but Worker and Dial means its default.
type Options struct {
	Worker wire.WorkerID // this node
	Dial   Dial          // how batches leave

	Window     uint32 // records that a sender may have on the way to an anchor of ours
	SlotBytes  uint32 // bytes of a slot that wait here before its credit is withheld
	PeerBytes  int    // bytes of a peer's records that may be held for an earlier one
	MaxBatch   int    // bytes of a batch, its header included
	QueueBytes int    // bytes that may wait for a peer's connection before senders wait
	MaxPeers   int

	Flush      Flush
	VisitFloor time.Duration // between two returns of credit to a peer
	Linger     time.Duration // how long returned credit waits for company

	// Silence is how long a peer with streams to us may send nothing before it is asked
	// whether it lives, by Ping.
	Silence time.Duration
	Ping    func(context.Context, wire.WorkerID) error // nil: it is taken to live

	Metrics *Metrics // nil: counted nowhere
}

// Flush says when staged records are written. Opens, closes and credit go at once, and take
// along what is staged; terminals too, but for Gather.
type Flush struct {
	// Linger is how long the first staged record waits for company. 0: it is written as
	// soon as the connection can write, but for Gather.
	Linger time.Duration
	// Gather is how long a record may wait after the write before it, where records come one
	// by one and thousands of them a second: many producers, each with its own times. It is
	// for a Linger of 0; negative: never.
	Gather time.Duration
	// Manual leaves data to Peer.Flush and to full batches.
	Manual bool
}

func (o *Options) setDefaults() {
	o.Window = cmp.Or(o.Window, DefaultWindow)
	o.SlotBytes = cmp.Or(o.SlotBytes, DefaultSlotBytes)
	o.PeerBytes = cmp.Or(o.PeerBytes, DefaultPeerBytes)
	o.MaxBatch = cmp.Or(o.MaxBatch, DefaultMaxBatch)
	o.QueueBytes = cmp.Or(o.QueueBytes, DefaultQueueBytes)
	o.MaxPeers = cmp.Or(o.MaxPeers, DefaultMaxPeers)
	o.VisitFloor = cmp.Or(o.VisitFloor, DefaultVisitFloor)
	o.Linger = cmp.Or(o.Linger, DefaultLinger)
	if f := &o.Flush; f.Manual || f.Linger > 0 {
		f.Gather = -1
	} else {
		f.Gather = cmp.Or(f.Gather, DefaultGather)
	}
	o.Silence = cmp.Or(o.Silence, DefaultSilence)
	o.Window = min(o.Window, math.MaxInt32)
	o.MaxBatch = max(leastBatch, min(o.MaxBatch, largestBatch))
	o.QueueBytes = max(o.QueueBytes, 2*o.MaxBatch+1<<10) // a batch that is filled does not keep out the next
	if o.Metrics == nil {
		o.Metrics, _ = NewMetrics(nil)
	}
}

// Link is the outgoing way to a peer, which pulls from the Peer as its source.
type Link interface {
	// Kick says that there is something to take, until Take returns nil. It never blocks;
	// on a link that is closed it does nothing.
	Kick()
	// Close ends the link; no Take runs afterwards.
	Close()
}

// Source is what a link pulls whole frames from (transport.Source).
type Source interface {
	Take() []byte
	// Wrote says that the frame was written. Where the connection failed it must not be
	// told: what the frame says of our slots is then said again, after down.
	Wrote(frame []byte)
}

// Dial makes the link to a peer; it need not connect before the first Kick. down is
// told when a connection that took frames is lost or could not be made; no Take or
// Wrote runs then, nor later until the next Kick. Dial itself must not call the mux.
type Dial func(to wire.WorkerID, s Source, down func(error)) Link

// What a producer's call may fail with.
var (
	// ErrWouldBlock: the consumer has not drained enough yet, or the connection is full.
	ErrWouldBlock = errors.New("the stream's credit or the connection's queue is used up")
	// ErrNotEnded: the stream was not ended yet.
	ErrNotEnded = errors.New("the stream was not ended")
	// ErrEnded: the stream was ended here, by a terminal.
	ErrEnded = errors.New("the stream has ended")
	// ErrCancelled: the consumer wants no more of the stream.
	ErrCancelled = errors.New("the consumer cancelled the stream")
	// ErrPeerLost: the connection to the peer was lost, and with it the stream.
	ErrPeerLost = errors.New("the peer was lost")
	// ErrTooLarge: a record that no frame can carry.
	ErrTooLarge = errors.New("the record is too large")
	// ErrTooMany: there is no slot, or no room for another peer.
	ErrTooMany = errors.New("too many")
	// ErrClosed: the mux was closed.
	ErrClosed = errors.New("the mux is closed")
)

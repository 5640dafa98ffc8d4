// SPDX-License-Identifier: Apache-2.0

// Package carrier moves the same streams over one carrier a file. Each has a consuming
// and a producing side, which live in two processes.
package carrier

import (
	"encoding/json"
	"errors"

	"github.com/velo-agent/velo-agent/tests/rig/load"
)

// Spec is what both sides of a repetition know.
type Spec struct {
	Carrier   string  `json:"carrier"`
	Interface string  `json:"interface"` // of the consumer: push or recv, where there are two
	Streams   int     `json:"streams"`
	Records   int     `json:"records"` // of each stream
	Size      int     `json:"size"`    // bytes of a record
	Paced     bool    `json:"paced"`
	PerStream bool    `json:"per_stream"` // a producer each; else one for all streams of a peer
	Rate      float64 `json:"rate"`       // records a second in all, when paced
	SetupRate float64 `json:"setup_rate"` // streams a second in all, while they are set up
	Peers     int     `json:"peers"`
	// InFlight, if not 0: streams are asked for as others end, so many at a time, and each
	// has all its records sent at once.
	InFlight int `json:"in_flight"`
	Tasks    int `json:"tasks"` // of local cycles
}

// Peer is where a stream is produced.
func (s *Spec) Peer(stream int) int { return stream % s.Peers }

// Consumer is the consuming side. It tells its sink of every record and every end.
type Consumer interface {
	// Address is what the producer needs to know; JSON.
	Address() any
	// Connect is told the producer's. Afterwards no connection is to be made but what
	// each stream needs.
	Connect(producer json.RawMessage) error
	// Request asks for a stream; how that travels is the carrier's. It may wait for Flush.
	Request(stream int) error
	Flush() error
	Close() error
}

// Producer is the producing side, all peers of it.
type Producer interface {
	Address() any
	Connect(consumer json.RawMessage) error
	Close() error
}

// Serve is told of each stream that the consumer asked for and the carrier opened. It may
// take as long as the stream.
type Serve func(stream int, s Sender, err error)

// Sender is the producer's end of a stream, one goroutine's at a time.
type Sender interface {
	// Send hands a record over. The slice is the caller's again when it returns.
	Send(record []byte) error
	// Close says that the stream is complete.
	Close() error
}

// Trier is a Sender that can do better than wait.
type Trier interface {
	Sender
	// TrySend is Send, or returns ErrWouldBlock.
	TrySend(record []byte) error
}

// ErrWouldBlock: the stream takes no more now.
var ErrWouldBlock = errors.New("the stream takes no more now")

// Feeds is a Producer whose senders are Triers.
type Feeds interface {
	// Feeder returns what tells when the senders of one goroutine take more.
	Feeder() Feeder
}

// Feeder is one goroutine's.
type Feeder interface {
	Add(Trier)
	// Next appends the senders that take more to list. wait: until there is one.
	Next(list []Trier, wait bool) ([]Trier, error)
}

// Writes is a side that counts its writes to sockets itself: the kernel's count has the
// wake-ups of Go's poller too.
type Writes interface {
	Writes() (int64, error)
}

// Carrier makes the two sides.
type Carrier struct {
	Consumer func(*Spec, *load.Sink) (Consumer, error)
	Producer func(*Spec, Serve) (Producer, error)
}

// All are the carriers of this program by name.
var All = map[string]Carrier{
	"tcp":   {newTCPConsumer, newTCPProducer},
	"yamux": {newMuxConsumer(yamuxServer), newMuxProducer(yamuxClient)},
	"smux":  {newMuxConsumer(smuxServer), newMuxProducer(smuxClient)},
	"grpc":  {newGRPCConsumer, newGRPCProducer},
	"h2":    {newH2Consumer, newH2Producer},
	"quic":  {newQUICConsumer, newQUICProducer},
	"plane": {newPlaneConsumer, newPlaneProducer},
}

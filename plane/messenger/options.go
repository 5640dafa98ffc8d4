// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"cmp"
	"context"
	"log/slog"

	"github.com/velo-agent/velo-agent/plane/discovery"
	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// Listen is one address to listen on. The order of several is that of preference: a
// peer that has several of the same transports is reached by the first.
type Listen struct {
	Network string // "tcp" or "unix"
	Address string // IP address and port (0: any), or absolute path
	// Advertise is the IP address and port by which peers reach it, where a port mapping or NAT
	// is between; of tcp. Empty: as it listens.
	Advertise string
}

// Options of a Messenger. The zero value is usable: a node that only sends, and learns
// nothing that it did not ask on the same connection.
type Options struct {
	Instance  wire.InstanceID // drawn if zero
	Listen    []Listen
	Transport transport.Options
	Discovery discovery.Discovery // nil: only those who were registered or said hello
	Log       *slog.Logger
	Metrics   *Metrics

	Peers    int // known at once: 65,536 by default
	Handlers int // running at once: 1,024 by default, a quarter of them for one connection
	Queue    int // messages that wait for a handler: 16,384 by default, 64 MiB in all
	// Staged bounds a payload that the peer keeps for us to pull: 64 MiB by default. Those
	// that are being pulled may be four times that together.
	Staged int
}

func (o Options) withDefaults() Options {
	if o.Instance == (wire.InstanceID{}) {
		o.Instance = wire.NewInstanceID()
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.Transport.Log = cmp.Or(o.Transport.Log, o.Log)
	if o.Transport.Metrics == nil {
		o.Transport.Metrics, _ = transport.NewMetrics(nil)
	}
	if o.Metrics == nil {
		o.Metrics, _ = NewMetrics(nil)
	}
	o.Peers = cmp.Or(o.Peers, 65_536)
	o.Handlers = cmp.Or(o.Handlers, 1024)
	o.Queue = cmp.Or(o.Queue, 16_384)
	o.Staged = cmp.Or(o.Staged, 64<<20)
	return o
}

// Message is what a handler is given.
type Message struct {
	From    wire.WorkerID
	Kind    wire.Kind
	Body    []byte // the handler's own
	Headers []byte // for wire.LookupHeader; nil: none
}

// HandlerFunc serves a message. Its result answers a Unary message, an error's text
// answers AckNack too. ctx ends when the messenger is closed.
type HandlerFunc func(ctx context.Context, m Message) ([]byte, error)

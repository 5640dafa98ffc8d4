// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/velo-agent/velo-agent/plane/discovery"
	"github.com/velo-agent/velo-agent/plane/messenger"
	"github.com/velo-agent/velo-agent/plane/mux"
	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// Defaults of Options, as velo 0.21 has them.
const (
	DefaultHeartbeat    = 5 * time.Second
	DefaultUnattached   = 2 * time.Minute
	DefaultAcceptWindow = 3 * time.Minute
	DefaultMaxAnchors   = 1 << 20
	DefaultMaxSenders   = 1 << 20
)

// Options of a Node. The zero value of a field means its default.
type Options struct {
	Instance  wire.InstanceID // zero: drawn
	Listen    []messenger.Listen
	Transport transport.Options
	Discovery discovery.Discovery // nil: peers are registered
	Mux       mux.Options         // Worker, Dial, Ping and Metrics are the node's

	Heartbeat    time.Duration // how often senders to our anchors are to beat
	Unattached   time.Duration // how long an anchor waits for a sender; negative: for ever
	AcceptWindow time.Duration // how long a ticket, or an attach that was granted, waits for its stream
	MaxAnchors   int
	MaxSenders   int
	NoTCPStream  bool // serve no producers without a mux, one connection a stream

	noMux bool // of tests: name no mux as a producer

	Metrics prometheus.Registerer // nil: nothing is shown
	Log     *slog.Logger          // nil: nothing is said
}

func (o *Options) setDefaults() {
	def(&o.Heartbeat, DefaultHeartbeat)
	def(&o.Unattached, DefaultUnattached)
	def(&o.AcceptWindow, DefaultAcceptWindow)
	def(&o.MaxAnchors, DefaultMaxAnchors)
	def(&o.MaxSenders, DefaultMaxSenders)
	if o.Instance == (wire.InstanceID{}) {
		o.Instance = wire.NewInstanceID()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

func def[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// AnchorOptions of one anchor. The zero value of a field means the node's.
type AnchorOptions struct {
	MPSC       bool // many senders
	MaxSenders int  // of an MPSC anchor; 0: as many as come
	Unattached time.Duration
	Heartbeat  time.Duration
	Value      any // the caller's own (Anchor.Value)
}

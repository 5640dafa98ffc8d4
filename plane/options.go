// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"cmp"
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
	MaxSenders   int  // streams to other nodes
	NoTCPStream  bool // serve no producers without a mux, one connection a stream

	// Streams is where those producers' connections come in. Zero: on a port of its own of the
	// first TCP listener's address, but nowhere if that one has an Advertise, for no mapping
	// forwards a port that nobody knew before.
	Streams messenger.Listen

	noMux bool // of tests: name no mux as a producer

	Metrics prometheus.Registerer // nil: nothing is shown
	Log     *slog.Logger          // nil: nothing is said
}

func (o *Options) setDefaults() {
	o.Heartbeat = cmp.Or(o.Heartbeat, DefaultHeartbeat)
	o.Unattached = cmp.Or(o.Unattached, DefaultUnattached)
	o.AcceptWindow = cmp.Or(o.AcceptWindow, DefaultAcceptWindow)
	o.MaxAnchors = cmp.Or(o.MaxAnchors, DefaultMaxAnchors)
	o.MaxSenders = cmp.Or(o.MaxSenders, DefaultMaxSenders)
	if o.Instance == (wire.InstanceID{}) {
		o.Instance = wire.NewInstanceID()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// anchorOptions are those of an anchor but for its Value: one object for all that have the
// node's.
func (n *Node) anchorOptions(o AnchorOptions) *AnchorOptions {
	o.Value = nil
	if o == (AnchorOptions{}) {
		return &n.one
	}
	if o == (AnchorOptions{MPSC: true}) {
		return &n.many
	}
	own := o
	own.setDefaults(&n.opts)
	return &own
}

func (o *AnchorOptions) setDefaults(of *Options) {
	o.Heartbeat = cmp.Or(o.Heartbeat, of.Heartbeat)
	if !o.MPSC { // velo's anchors of many senders wait for ever
		o.Unattached = cmp.Or(o.Unattached, of.Unattached)
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

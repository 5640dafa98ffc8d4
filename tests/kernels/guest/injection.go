// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"time"

	"github.com/velo-agent/velo-agent/attribution"
)

// injection is one delay that the server makes in every second exchange, and the
// stage in which it must be found.
type injection struct {
	name  string
	stage attribution.Stage
	kind  attribution.TraceKind

	ipv6, mptcp bool

	accept time.Duration // before it accepts
	read   time.Duration // before it reads the request, once that is there
	engine time.Duration // before the first response write
	gap    time.Duration // before the second
	// closed is how long the client does not read, so that the window closes
	// under the second write; the delay is the time spent in that write.
	closed time.Duration
}

var injections = []injection{
	{name: "accept_wait", stage: attribution.AcceptWait, kind: attribution.TraceTTFT, accept: 300 * time.Millisecond},
	{name: "accept_wait, MPTCP over IPv6", stage: attribution.AcceptWait, kind: attribution.TraceTTFT, ipv6: true, mptcp: true, accept: 300 * time.Millisecond},
	{name: "reader", stage: attribution.Reader, kind: attribution.TraceTTFT, read: 300 * time.Millisecond},
	{name: "engine", stage: attribution.Engine, kind: attribution.TraceTTFT, engine: 300 * time.Millisecond},
	{name: "engine of a gap", stage: attribution.Engine, kind: attribution.TraceGap, gap: 300 * time.Millisecond},
	{name: "send_queue of a gap", stage: attribution.SendQueue, kind: attribution.TraceGap, closed: 300 * time.Millisecond},
}

const (
	messageBytes = 64      // of a request and of a short write
	closedBytes  = 1 << 20 // of the write that finds the window closed
	bufferBytes  = 1 << 16 // send and receive buffers of that connection
	tailBytes    = 16      // the last write: how long the delay was and when it ended, in ns
)

// warm says that an undisturbed exchange comes first on each connection: where the
// accept is known by the first read alone, a late read of the first request would
// be a late accept.
func (j *injection) warm() bool { return j.accept == 0 }

// response is how many bytes the server sends in the measured exchange.
func (j *injection) response() int {
	if j.closed > 0 {
		return messageBytes + closedBytes + tailBytes
	}
	return 2*messageBytes + tailBytes
}

// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// Handler takes what connections bring. Each method is called by the reading goroutine
// of the connection, so the calls for one connection never overlap.
type Handler interface {
	// Frame takes one frame. header and payload are views, valid until it returns. It must
	// not block.
	Frame(c *Conn, t wire.FrameType, header, payload []byte)
	// Closed is told once, after the last Frame and after the last call of the connection's
	// Source.
	Closed(c *Conn, err error)
}

// Source gives frames to a connection's writer when it can write: the writer pulls.
type Source interface {
	// Take returns the next whole frame, or several one after the other, or nil: nothing
	// now. It is called by one goroutine at a time and must not block.
	Take() []byte
	// Wrote says that the frame was handed to the kernel; the slice is the source's again.
	// Where the connection failed it does not come.
	Wrote(frame []byte)
}

const (
	firstRead   = 4 << 10   // what a connection that has said nothing yet may cost, bytes
	readBuffer  = 64 << 10  // bytes; larger only while a larger frame is read
	trusted     = 256 << 10 // a declared length up to this is allocated at once, bytes
	queueFrames = 256
	writeBytes  = 64 << 10 // queued frames that share a write, bytes
)

// Options of a transport. The zero value is usable.
type Options struct {
	// Buffer is asked of the kernel for each direction of a connection, in bytes: 2 MiB
	// by default. What was granted is in Conn.Buffers.
	Buffer int
	// Patience is how long a frame may stay incomplete, an accepted connection silent and
	// a write stuck: 30 s by default.
	Patience time.Duration
	// DialTimeout bounds one attempt to connect, TLS included: 5 s by default.
	DialTimeout time.Duration
	// HalfOpen bounds the accepted connections of a listener that have not sent a frame
	// yet (1,024 by default), Accepted those and all others (4,096). When there are more the
	// one that has been silent for longest is closed.
	HalfOpen, Accepted int
	// TLS is used on TCP; nil: plain connections.
	TLS *TLS
	// Insecure allows a TCP listener beyond the loopback interface without TLS.
	Insecure bool

	Metrics *Metrics
	Log     *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Buffer = cmp.Or(o.Buffer, 2<<20)
	o.Patience = cmp.Or(o.Patience, 30*time.Second)
	o.DialTimeout = cmp.Or(o.DialTimeout, 5*time.Second)
	o.HalfOpen = cmp.Or(o.HalfOpen, 1024)
	o.Accepted = cmp.Or(o.Accepted, 4096)
	if o.Metrics == nil {
		o.Metrics, _ = NewMetrics(nil)
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

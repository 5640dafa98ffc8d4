// SPDX-License-Identifier: Apache-2.0

package plane

import (
	"errors"

	"github.com/velo-agent/velo-agent/plane/mux"
)

// What a consumer's calls may return. The end of a stream that its sender finalized is
// io.EOF.
var (
	// ErrDetached: the sender left, another may attach. Reading goes on with it.
	ErrDetached = errors.New("the sender detached; another may attach")
	// ErrDropped: the sender went without a word, or was lost.
	ErrDropped = errors.New("the sender was dropped before the end of the stream")
	// ErrUnattached: no sender came in time, or none can come any more (Node.Drain).
	ErrUnattached = errors.New("no sender came to the anchor in time")
	// ErrMalformed: the sender sent what is no stream frame, or no bytes.
	ErrMalformed = errors.New("the sender sent what cannot be read")
	// ErrClosed: the anchor, sender or node was closed here.
	ErrClosed = errors.New("closed")
)

// What a producer's calls may return.
var (
	// ErrWouldBlock: TrySend found no credit or no room; a Feeder tells when to try again.
	ErrWouldBlock = mux.ErrWouldBlock
	// ErrCancelled: the consumer wants no more of the stream.
	ErrCancelled = mux.ErrCancelled
	// ErrPeerLost: the connection to the consumer was lost.
	ErrPeerLost = mux.ErrPeerLost
	// ErrTooLarge: no frame can carry the record.
	ErrTooLarge = mux.ErrTooLarge
	// ErrRefused: the consumer refused the attach; the text says why.
	ErrRefused = errors.New("the consumer refused the attach")
	// ErrTicket: the ticket cannot be used here.
	ErrTicket = errors.New("the ticket cannot be used")
)

// ErrDraining: the node drains (Node.Drain): its streams go on, and no new one begins.
var ErrDraining = errors.New("the node drains and begins no new stream; use another")

// ErrTooMany: the node has as many anchors, streams or peers as it takes.
var ErrTooMany = mux.ErrTooMany

// SenderError is an error that the sender's application sent; the stream goes on.
type SenderError struct{ Text string }

func (e *SenderError) Error() string { return "the sender says: " + e.Text }

// TransportError is how a sender ended its stream with an error.
type TransportError struct{ Text string }

func (e *TransportError) Error() string { return "the stream ended with an error: " + e.Text }

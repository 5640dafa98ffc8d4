// SPDX-License-Identifier: Apache-2.0

package messenger

import "errors"

// Why a message was not sent, or not answered.
var (
	// ErrUnknownPeer: neither the application, nor a _hello, nor discovery told of it.
	ErrUnknownPeer = errors.New("unknown peer")
	// ErrPeerLost: the connection to the peer ended, or could not be made.
	ErrPeerLost = errors.New("connection to the peer lost")
	// ErrShuttingDown: the peer drains and takes no such message any more.
	ErrShuttingDown = errors.New("peer is shutting down")
	// ErrNoHandler: the peer's list does not have the handler.
	ErrNoHandler = errors.New("peer has no such handler")
	// ErrNoRoute: the peer's address has no transport that this node has.
	ErrNoRoute = errors.New("no common transport")
	// ErrTaken: the peer is known at another address, where it answers.
	ErrTaken = errors.New("known at another address")
	// ErrTooMany: a bound of this node is reached.
	ErrTooMany = errors.New("too many")
	// ErrClosed: the messenger was closed.
	ErrClosed = errors.New("messenger closed")
)

// RemoteError is the text of a peer's handler, or of the peer itself, in place of a result.
type RemoteError struct{ Text string }

func (e *RemoteError) Error() string { return "the peer answers: " + e.Text }

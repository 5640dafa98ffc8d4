// SPDX-License-Identifier: Apache-2.0

package transport

import "errors"

// Why a connection could not be had, or ended.
var (
	// ErrClosed: this side closed it.
	ErrClosed = errors.New("connection closed")
	// ErrIncomplete: the peer began a frame, or connected, and then sent nothing more.
	ErrIncomplete = errors.New("the peer stopped within a frame")
	// ErrTruncated: the peer closed within a frame.
	ErrTruncated = errors.New("the connection ended within a frame")
	// ErrStuck: the peer did not read for so long that it must be gone.
	ErrStuck = errors.New("the peer does not read")
	// ErrCrowded: more connections than the listener takes; the longest silent one goes.
	ErrCrowded = errors.New("too many connections")
	// ErrInsecure: a listener that others can reach, without TLS.
	ErrInsecure = errors.New("a listener beyond this host without TLS")
	// ErrIdentity: a certificate that is not on the allow-list.
	ErrIdentity = errors.New("certificate not allowed")
	// ErrBusy: a socket at this path is in use.
	ErrBusy = errors.New("the socket is in use")
)

// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
)

// Names of the handlers that a node serves for its peers. BatchHandler is one more.
const (
	HandlerHello        = "_hello"         // HelloRequest, HandlersAnswer
	HandlerListHandlers = "_list_handlers" // null, HandlersAnswer

	HandlerAttach      = "_anchor_attach"       // AttachRequest, EncodeAttachAnswer
	HandlerDetach      = "_anchor_detach"       // HandleRequest, null
	HandlerFinalize    = "_anchor_finalize"     // HandleRequest, null
	HandlerCancel      = "_anchor_cancel"       // HandleRequest, null
	HandlerAbortAttach = "_anchor_abort_attach" // AbortAttachRequest, null
	HandlerRenew       = "_anchor_renew"        // ParseRenewRequest, null
	HandlerMPSCAttach  = "_mpsc_anchor_attach"  // AttachRequest, EncodeAttachAnswer
	HandlerMPSCDetach  = "_mpsc_anchor_detach"  // DetachSenderRequest, null
	HandlerMPSCCancel  = "_mpsc_anchor_cancel"  // HandleRequest, null

	HandlerStreamCancel = "_stream_cancel" // CancelRequest, no answer
	HandlerStreamStop   = "_stream_stop"   // CancelRequest, no answer; V2 only
)

// HelloRequest introduces its sender.
type HelloRequest struct {
	PeerInfo PeerInfo `json:"peer_info"`
}

// UnmarshalJSON reads a HelloRequest; the field is required.
func (r *HelloRequest) UnmarshalJSON(b []byte) error {
	type plain HelloRequest
	return decode("hello", b, (*plain)(r), "peer_info")
}

// HandlersAnswer lists what a node serves.
type HandlersAnswer struct {
	Handlers []string `json:"handlers"`
}

// MarshalJSON writes no handlers as an empty list: velo refuses null.
func (a HandlersAnswer) MarshalJSON() ([]byte, error) {
	type plain HandlersAnswer
	if a.Handlers == nil {
		a.Handlers = []string{}
	}
	return json.Marshal(plain(a))
}

// UnmarshalJSON reads a HandlersAnswer; the field is required.
func (a *HandlersAnswer) UnmarshalJSON(b []byte) error {
	type plain HandlersAnswer
	return decode("list of handlers", b, (*plain)(a), "handlers")
}

// HandleRequest is about an anchor and says nothing more.
type HandleRequest struct {
	Handle Handle `json:"handle"`
}

// UnmarshalJSON reads a HandleRequest; the field is required.
func (r *HandleRequest) UnmarshalJSON(b []byte) error {
	type plain HandleRequest
	return decode("anchor request", b, (*plain)(r), "handle")
}

// AbortAttachRequest undoes exactly the attachment that has this cancel handle.
type AbortAttachRequest struct {
	Handle       Handle `json:"handle"`
	CancelHandle Handle `json:"stream_cancel_handle"`
}

// UnmarshalJSON reads an AbortAttachRequest; both fields are required.
func (r *AbortAttachRequest) UnmarshalJSON(b []byte) error {
	type plain AbortAttachRequest
	return decode("abort of an attach", b, (*plain)(r), "handle", "stream_cancel_handle")
}

// DetachSenderRequest takes one sender off an MPSC anchor.
type DetachSenderRequest struct {
	Handle   Handle `json:"handle"`
	SenderID uint64 `json:"sender_id"`
}

// UnmarshalJSON reads a DetachSenderRequest; both fields are required.
func (r *DetachSenderRequest) UnmarshalJSON(b []byte) error {
	type plain DetachSenderRequest
	return decode("detach of a sender", b, (*plain)(r), "handle", "sender_id")
}

// CancelRequest cancels or stops the stream that its producer knows by this id, the low
// half of the cancel handle.
type CancelRequest struct {
	SenderStreamID uint64 `json:"sender_stream_id"`
}

// UnmarshalJSON reads a CancelRequest; the field is required.
func (r *CancelRequest) UnmarshalJSON(b []byte) error {
	type plain CancelRequest
	return decode("cancel of a stream", b, (*plain)(r), "sender_stream_id")
}

// MaxReservations bounds the list of one renewal.
const MaxReservations = 256

// Reservation is an anchor that its future producer wants kept; Session is that of its
// ticket, nil if it has none.
type Reservation struct {
	Handle  Handle  `json:"handle"`
	Session *uint64 `json:"session"`
}

// UnmarshalJSON reads a Reservation; the handle is required.
func (r *Reservation) UnmarshalJSON(b []byte) error {
	type plain Reservation
	return decode("reservation", b, (*plain)(r), "handle")
}

// ParseRenewRequest reads the list of at most MaxReservations that renews reservations.
// The list's JSON is what json.Marshal makes of it.
func ParseRenewRequest(b []byte) ([]Reservation, error) {
	var list []Reservation
	if err := decode("renewal", b, &list); err != nil {
		return nil, err
	}
	if list == nil || len(list) > MaxReservations {
		return nil, fmt.Errorf("reading the renewal: %w: %d reservations, want a list of at most %d", ErrBody, len(list), MaxReservations)
	}
	return list, nil
}

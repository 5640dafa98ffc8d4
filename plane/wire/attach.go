// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"fmt"
)

// defaultHeartbeatMS is what an SPSC answer without an interval means.
const defaultHeartbeatMS = 5000

// AttachRequest asks for a place at an anchor.
type AttachRequest struct {
	Handle        Handle   `json:"handle"`
	SessionID     uint64   `json:"session_id"`           // the producer's stream id; receivers ignore it
	CancelHandle  Handle   `json:"stream_cancel_handle"` // where cancel goes
	TransportKeys []string `json:"supported_transport_keys,omitempty"`
	LaneKey       *uint64  `json:"lane_key,omitempty"`
}

// UnmarshalJSON reads an AttachRequest; the handles and the session are required. Called
// on a body directly it saves the pass that json.Unmarshal makes before it.
func (r *AttachRequest) UnmarshalJSON(b []byte) error {
	if request, ok := canonicalAttachRequest(b); ok {
		*r = request
		return nil
	}
	*r = AttachRequest{}
	type plain AttachRequest
	return decode("attach request", b, (*plain)(r), "handle", "session_id", "stream_cancel_handle")
}

// AttachAnswer says on what terms a producer may stream to an anchor.
type AttachAnswer struct {
	TransportKey        string `json:"streaming_transport_key"`
	HeartbeatIntervalMS uint64 `json:"heartbeat_interval_ms"`
	SenderID            uint64 `json:"sender_id,omitempty"` // from 1, MPSC only
	RoutingSessionID    uint64 `json:"routing_session_id"`  // 0: the producer uses its own stream id
	InitialCredit       uint32 `json:"initial_credit"`      // records; 0: no mux is offered
	SlotByteBudget      uint32 `json:"slot_byte_budget"`    // bytes; 0: the default
	Lane                uint16 `json:"lane,omitempty"`
}

// AttachError is a refused attach. Only its text tells the reasons apart.
type AttachError struct{ Reason string }

func (e *AttachError) Error() string { return "the peer refused to attach: " + e.Reason }

// EncodeAttachAnswer is the body that grants an attach, to an MPSC anchor or not.
func EncodeAttachAnswer(a *AttachAnswer, mpsc bool) []byte {
	answer := *a
	if !mpsc {
		answer.SenderID = 0
	}
	return encode(struct {
		OK *AttachAnswer `json:"Ok"`
	}{&answer})
}

// EncodeAttachError is the body that refuses an attach. It too goes in a Response that is OK.
func EncodeAttachError(reason string) []byte {
	return encode(map[string]map[string]string{"Err": {"reason": reason}})
}

// ParseAttachAnswer reads the answer of an MPSC anchor or another. A refusal is an
// *AttachError.
func ParseAttachAnswer(b []byte, mpsc bool) (*AttachAnswer, error) {
	if a, ok := canonicalAttachAnswer(b, mpsc); ok {
		return &a, nil
	}
	return parseAttachAnswer(b, mpsc)
}

func parseAttachAnswer(b []byte, mpsc bool) (*AttachAnswer, error) {
	const what = "attach answer"
	var answer struct {
		OK  json.RawMessage `json:"Ok"`
		Err json.RawMessage `json:"Err"`
	}
	if err := decode(what, b, &answer); err != nil {
		return nil, err
	}
	switch {
	case answer.OK != nil && answer.Err == nil:
		a := &AttachAnswer{HeartbeatIntervalMS: defaultHeartbeatMS}
		required := []string{"streaming_transport_key"}
		if mpsc {
			required = append(required, "heartbeat_interval_ms", "sender_id")
		}
		if err := decode(what, answer.OK, a, required...); err != nil {
			return nil, err
		}
		return a, nil
	case answer.Err != nil && answer.OK == nil:
		var refusal struct {
			Reason string `json:"reason"`
		}
		if err := decode(what, answer.Err, &refusal, "reason"); err != nil {
			return nil, err
		}
		return nil, &AttachError{Reason: refusal.Reason}
	}
	return nil, fmt.Errorf("reading the %s: %w: want either Ok or Err", what, ErrBody)
}

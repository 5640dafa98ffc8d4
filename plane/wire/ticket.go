// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"

	"github.com/tinylib/msgp/msgp"
)

// Ticket lets a producer begin without an attach: the consumer has bound the session
// before anyone asked, and the application carries the ticket in its own request. As JSON
// it is an object, as msgpack an array of 5, or of 6 if the lane is not 0.
type Ticket struct {
	TransportKey        string `json:"streaming_transport_key"`
	HeartbeatIntervalMS uint64 `json:"heartbeat_interval_ms"`
	RoutingSessionID    uint64 `json:"routing_session_id"`
	InitialCredit       uint32 `json:"initial_credit"`   // records, never 0
	SlotByteBudget      uint32 `json:"slot_byte_budget"` // bytes, never 0
	Lane                uint16 `json:"lane,omitempty"`
}

// UnmarshalJSON reads a ticket; all but the lane is required.
func (t *Ticket) UnmarshalJSON(b []byte) error {
	type plain Ticket
	return decode("ticket", b, (*plain)(t), "streaming_transport_key", "heartbeat_interval_ms",
		"routing_session_id", "initial_credit", "slot_byte_budget")
}

// AppendMsgpack appends the ticket's msgpack.
func (t *Ticket) AppendMsgpack(dst []byte) []byte {
	n := uint32(5)
	if t.Lane != 0 {
		n = 6
	}
	dst = msgp.AppendArrayHeader(dst, n)
	dst = msgp.AppendString(dst, t.TransportKey)
	dst = msgp.AppendUint64(dst, t.HeartbeatIntervalMS)
	dst = msgp.AppendUint64(dst, t.RoutingSessionID)
	dst = msgp.AppendUint32(dst, t.InitialCredit)
	dst = msgp.AppendUint32(dst, t.SlotByteBudget)
	if t.Lane != 0 {
		dst = msgp.AppendUint16(dst, t.Lane)
	}
	return dst
}

// ParseTicketMsgpack reads a ticket from the start of b, and returns the bytes that
// follow it.
func ParseTicketMsgpack(b []byte) (t Ticket, rest []byte, err error) {
	if t, rest, err = readTicket(b); err != nil {
		return Ticket{}, nil, fmt.Errorf("reading a msgpack ticket: %w: %w", ErrBody, err)
	}
	return t, rest, nil
}

func readTicket(b []byte) (t Ticket, rest []byte, err error) {
	n, rest, err := msgp.ReadArrayHeaderBytes(b)
	if err != nil {
		return t, nil, err
	}
	if n != 5 && n != 6 {
		return t, nil, fmt.Errorf("an array of %d, want 5 or 6", n)
	}
	var key []byte
	if key, rest, err = readText(rest); err != nil {
		return t, nil, err
	}
	t.TransportKey = string(key)
	if t.HeartbeatIntervalMS, rest, err = msgp.ReadUint64Bytes(rest); err != nil {
		return t, nil, err
	}
	if t.RoutingSessionID, rest, err = msgp.ReadUint64Bytes(rest); err != nil {
		return t, nil, err
	}
	if t.InitialCredit, rest, err = msgp.ReadUint32Bytes(rest); err != nil {
		return t, nil, err
	}
	if t.SlotByteBudget, rest, err = msgp.ReadUint32Bytes(rest); err != nil {
		return t, nil, err
	}
	if n == 6 {
		t.Lane, rest, err = msgp.ReadUint16Bytes(rest)
	}
	return t, rest, err
}

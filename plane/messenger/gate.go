// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"bytes"

	"github.com/velo-agent/velo-agent/plane/transport"
	"github.com/velo-agent/velo-agent/plane/wire"
)

// gate are the handlers that a draining node still serves, as velo 0.21 has it: what
// ends streams and payloads under way, and nothing that begins one.
var gate = map[string]bool{
	wire.HandlerStreamCancel: true, wire.HandlerStreamStop: true,
	wire.HandlerDetach: true, wire.HandlerFinalize: true, wire.HandlerCancel: true,
	wire.HandlerAbortAttach: true, wire.HandlerRenew: true,
	wire.HandlerMPSCDetach: true, wire.HandlerMPSCCancel: true,
	wire.HandlerAcquire: true, wire.HandlerPull: true, wire.HandlerDetachData: true, wire.HandlerRelease: true,
	"_rv_lease_renew": true,
}

func passesGate(handler []byte) bool {
	return bytes.HasPrefix(handler, []byte(wire.BatchHandler)) || bytes.HasPrefix(handler, []byte("_event_")) || gate[string(handler)]
}

// refuse copies the header of a message back to its sender.
func (m *Messenger) refuse(c *transport.Conn, header []byte) {
	c.Transport().Reject(transport.DrainRejected)
	frame, err := frameOf(wire.ShuttingDown, header, nil)
	if err != nil || !c.TrySend(frame) {
		c.Transport().Reject(transport.DrainReplyError)
	}
}

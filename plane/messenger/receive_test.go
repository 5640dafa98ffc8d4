// SPDX-License-Identifier: Apache-2.0

package messenger

import (
	"testing"

	"github.com/velo-agent/velo-agent/plane/wire"
)

// TestNowAllocates: what a batch costs before its handler has it.
func TestNowAllocates(t *testing.T) {
	m, s := newNode(t, "tcp", Options{}), newScript(t)
	n := 0
	m.HandleNow(wire.BatchHandler, func(wire.WorkerID, []byte) { n++ })
	c := s.dial(t, m) // any connection will do
	c.Owner = newLine(m, nil)
	header, err := wire.AppendMessageHeader(nil, wire.FireAndForget, wire.NewResponseID(s.id.Worker(), 0, 0), wire.BatchHandler, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload := make([]byte, 1000)
	receive := func() { (*hooks)(m).Frame(c, wire.Message, header, payload) }
	if got := testing.AllocsPerRun(1000, receive); got != 0 {
		t.Errorf("%v allocations a batch", got)
	}
	if n != 1001 {
		t.Errorf("%d batches handled", n)
	}
}

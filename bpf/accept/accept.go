// SPDX-License-Identifier: Apache-2.0

// Package accept watches the accept queue: when a connection is established, when
// it is accepted, and when it closes.
package accept

import (
	"io"

	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/bpf/ladder"
)

// The rungs of the accept wait, by name.
const (
	RungReturn       = "fexit/inet_csk_accept"
	RungReturnOld    = "fexit/inet_csk_accept (before 6.10)"
	RungExit         = "tp_btf/sys_exit"
	RungFirstReceive = "interval to the first receive"
	RungFirstRead    = "interval to the first read"
)

// States is the signal that marks a child as established and counts closed ones.
func States(m *bpf.Maps) ladder.Signal {
	return ladder.Signal{Name: "connection_state", Rungs: []ladder.Rung{
		m.Rung("tp_btf/inet_sock_set_state", loadAccept, "state_changed"),
	}}
}

// Wait is the signal of the accept's moment. The sys_exit rung slows every system
// call of the node while it is attached; without exact it is left out.
func Wait(m *bpf.Maps, exact bool) ladder.Signal {
	s := ladder.Signal{Name: "accepted", Rungs: []ladder.Rung{
		m.Flagged(bpf.FlagAcceptReturn, m.Rung(RungReturn, loadAccept, "accepted")),
		m.Flagged(bpf.FlagAcceptReturn, m.Rung(RungReturnOld, loadAccept, "accepted_before_6_10")),
	}}
	if exact {
		s.Rungs = append(s.Rungs, m.Flagged(bpf.FlagAcceptExit, m.Rung(RungExit, loadAccept, "accept_returned")))
	}
	s.Rungs = append(s.Rungs,
		m.Rung(RungFirstReceive, loadAccept, "first_receive"),
		ladder.Rung{Name: RungFirstRead, Attach: func() (io.Closer, error) { return ladder.Closers{}, nil }})
	return s
}

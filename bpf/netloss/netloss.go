// SPDX-License-Identifier: Apache-2.0

// Package netloss counts retransmissions and resets of watched connections.
package netloss

import (
	"github.com/velo-agent/velo-agent/bpf"
	"github.com/velo-agent/velo-agent/bpf/ladder"
)

// Loss is the signal of retransmitted segments and of resets in both directions.
func Loss(m *bpf.Maps) ladder.Signal {
	return ladder.Signal{Name: "loss_and_reset", Rungs: []ladder.Rung{
		m.Rung("tp_btf/tcp_retransmit_skb+tcp_send_reset+tcp_receive_reset", loadNetloss, "retransmitted", "reset_sent", "reset_received"),
		// tcp_send_reset is not given a socket on every kernel: then the two others.
		m.Rung("tp_btf/tcp_retransmit_skb+tcp_receive_reset", loadNetloss, "retransmitted", "reset_received"),
		m.Rung("tp_btf/tcp_retransmit_skb", loadNetloss, "retransmitted"),
	}}
}

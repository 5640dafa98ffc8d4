//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What was lost or reset on watched connections. */
#include "../include/conn.h"
#include "../include/port.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline struct port *port_of_conn(const struct sock *sk)
{
	struct conn *c = sk ? conn_of(sk) : 0;

	return c ? port_of(c->port) : 0;
}

/* __tcp_retransmit_skb() */
SEC("tp_btf/tcp_retransmit_skb")
int BPF_PROG(retransmitted, struct sock *sk)
{
	struct port *p = port_of_conn(sk);

	if (p)
		COUNT(p->retransmits);
	return 0;
}

/* tcp_send_active_reset() and tcp_v4_send_reset(); those have no socket where the
 * segment belonged to none. */
SEC("tp_btf/tcp_send_reset")
int BPF_PROG(reset_sent, struct sock *sk)
{
	struct port *p = port_of_conn(sk);

	if (p)
		COUNT(p->resets_sent);
	return 0;
}

/* tcp_reset() */
SEC("tp_btf/tcp_receive_reset")
int BPF_PROG(reset_received, struct sock *sk)
{
	struct port *p = port_of_conn(sk);

	if (p)
		COUNT(p->resets_received);
	return 0;
}

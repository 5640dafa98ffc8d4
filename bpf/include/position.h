/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Positions: 64-bit counts of bytes in one direction that need no initial
 * sequence number, so they fit a connection of any age. The socket lock must be
 * held, or the parts may not belong together. */
#pragma once

#include "kernel.h"

static __always_inline u64 pos_arrived(struct tcp_sock *tp)
{
	return tp->bytes_received;
}

static __always_inline u64 pos_read(struct tcp_sock *tp)
{
	return tp->bytes_received - (u32)(tp->rcv_nxt - tp->copied_seq);
}

/* A FIN counts 1 in both inbound positions, in pos_read once the application has
 * been told of the end, and is no byte of a request. */
static __always_inline u32 data_arrived(struct tcp_sock *tp)
{
	return (u32)pos_arrived(tp) - !!(tp->inet_conn.icsk_inet.sk.sk_shutdown & RCV_SHUTDOWN);
}

static __always_inline u32 data_read(struct tcp_sock *tp)
{
	return (u32)pos_read(tp) -
	       (tp->inet_conn.icsk_inet.sk.sk_shutdown & RCV_SHUTDOWN && tp->copied_seq == tp->rcv_nxt);
}

static __always_inline u64 pos_written(struct tcp_sock *tp)
{
	return tp->bytes_acked + (u32)(tp->write_seq - tp->snd_una);
}

static __always_inline u64 pos_left(struct tcp_sock *tp)
{
	return tp->bytes_acked + (u32)(tp->snd_nxt - tp->snd_una);
}

/* The sequence number a lies before b. */
static __always_inline int before(u32 a, u32 b)
{
	return (s32)(a - b) < 0;
}

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The wait in the accept queue: from the child's ESTABLISHED to its accept. */
#pragma once

#include "config.h"
#include "conn.h"
#include "lost.h"
#include "port.h"

#define MAX_ACCEPTING 16384

/* Children that wait to be accepted, by the address of their struct sock, while
 * accept is watched at sys_exit: there only the file descriptor is at hand, and
 * what is reached through it is no pointer that socket storage takes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_ACCEPTING);
	__type(key, u64);
	__type(value, u64); /* ns of the accept, 0 before it */
} accepting SEC(".maps");

/* An interval is good for the wait's figure if it is narrower than this. */
#define ACCEPT_INTERVAL_NS 1000000

static __always_inline void accept_known(struct conn *c, u64 t, int exact)
{
	struct port *p = port_of(c->port);
	u64 since = c->unaccepted > c->established ? c->unaccepted : c->established;

	c->flags &= ~CONN_ACCEPT_PENDING;
	c->accepted = t;
	if (!exact)
		c->flags |= CONN_ACCEPT_INTERVAL;
	step(c, t, STEP_ACCEPTED, 0, !exact);
	if (!p)
		return;
	if (exact || t - since < ACCEPT_INTERVAL_NS)
		hist_add(&p->accept_wait, t - c->established);
	else
		COUNT(p->accept_unknown);
}

/* The application has touched the connection at t: it was accepted before. */
static __always_inline void accept_seen(struct conn *c, const struct sock *sk, u64 t)
{
	u64 key = (u64)sk, *at;

	if (!(c->flags & CONN_ACCEPT_PENDING))
		return;
	at = bpf_map_lookup_elem(&accepting, &key);
	if (at && *at)
		accept_known(c, *at, 1);
	else
		accept_known(c, t, 0);
	if (at)
		bpf_map_delete_elem(&accepting, &key);
}

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What is watched, and the figures of each watched port. */
#pragma once

#include "config.h"
#include "histogram.h"
#include "lost.h"
#include "stage.h"

#define MAX_PORTS 128
#define MAX_WATCHED 8192

/* A watched port of a network namespace. remote is set where the sockets that
 * connect *to* the port are meant (the other end of the same connection). */
struct watch_key {
	u32 netns; /* inode number of the namespace */
	u16 port;  /* host byte order */
	u16 remote;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_WATCHED); /* beyond MAX_PORTS several keys share an index */
	__type(key, struct watch_key);
	__type(value, u32); /* index into ports */
} watch_map SEC(".maps");

struct port {
	u64 connections; /* accepted or found */
	u64 untimed;	 /* requests that were answered, their times unknown */
	u64 accept_arrivals;
	u64 accept_high_water;
	u64 accept_unknown;   /* those whose wait could not be bounded */
	u64 accept_emfile;    /* accept failed for want of descriptors */
	u64 accept_overflows; /* of listeners that are closed: connections refused since they were marked */
	u64 retransmits;
	u64 resets_sent;
	u64 resets_received;
	u64 zero_windows;	 /* sends that returned with the peer's window closed */
	u64 blocked_writes;	 /* sends that returned with data that had not left */
	u64 nagle_writes;	 /* of those: held by Nagle until an acknowledgement comes */
	u64 early_answers;	 /* written before the request had been read */
	u64 rwnd_jiffies;	 /* closed connections: time limited by the peer's window */
	u64 sndbuf_jiffies;	 /* closed connections: time limited by the send buffer */
	u64 ttft_missed[STAGES]; /* exchanges beyond the objective, by the stage that took most */
	u64 gap_missed[STAGES];
	/* An exchange is in one of these two by its first write: content in it, or
	 * not. So each costs one histogram. */
	struct hist ttft_at_once;
	struct hist first_write;
	struct hist ttft_later; /* content after the first write */
	struct hist gap;
	struct hist accept_wait;
	/* Parts below HIST_RESOLUTION_NS are in none; what the others leave of the
	 * total is engine's sum. */
	struct hist ttft_stages[STAGES];
	struct hist gap_send_queue;
	struct hist gap_engine;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PORTS);
	__type(key, u32);
	__type(value, struct port);
} ports SEC(".maps");

/* What the open sockets of a port add up to; made anew by each walk. */
struct open_sockets {
	u64 walk; /* its number, set before it */
	u64 listeners;
	u64 accept_depth;
	u64 accept_limit;
	u64 accept_overflows; /* since they were marked */
	u64 established;
	u64 rwnd_jiffies;
	u64 sndbuf_jiffies;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PORTS);
	__type(key, u32);
	__type(value, struct open_sockets);
} open_map SEC(".maps");

/* The index under which the socket's port is watched now, or nothing. */
static __always_inline u32 *watched_as(struct sock *sk)
{
	struct watch_key key = {};

	key.netns = sk->__sk_common.skc_net.net->ns.inum;
	key.port = sk->__sk_common.skc_num;
	return bpf_map_lookup_elem(&watch_map, &key);
}

static __always_inline struct port *port_of(u32 index)
{
	struct port *p = bpf_map_lookup_elem(&ports, &index);

	if (!p)
		lost(LOST_PORT_INDEX);
	return p;
}

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Nothing is lost silently: each place and reason has a counter. */
#pragma once

#include "kernel.h"

enum lost_reason {
	LOST_RING_FULL,	      /* a record found no room in the ring */
	LOST_ACCEPTING_FULL,  /* an accept found no room in the accepting map */
	LOST_THREAD_STORAGE,  /* a thread could not be marked */
	LOST_CONN_STORAGE,    /* a connection could not be marked */
	LOST_WRITE_QUEUE,     /* a write was joined to the one before it: four waited */
	LOST_WAKE_COLLISION,  /* two connections shared a wake slot */
	LOST_IMPOSSIBLE_TIME, /* a step lay before its predecessor: clamped */
	LOST_PORT_INDEX,      /* a connection named a port that is not there */
	LOST_LEFT_UNSEEN,     /* a connection closed with a write that was not seen leaving */
	LOST_REASONS,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOST_REASONS);
	__type(key, u32);
	__type(value, u64);
} lost_map SEC(".maps");

static __always_inline void lost(u32 reason)
{
	u64 *n = bpf_map_lookup_elem(&lost_map, &reason);

	if (n)
		*n += 1;
}

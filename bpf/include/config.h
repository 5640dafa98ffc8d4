/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What user space may change while the programs run. */
#pragma once

#include "kernel.h"

enum config_flag {
	CONFIG_SEND_START = 1,	  /* a program sees the start of each send */
	CONFIG_ACCEPT_EXIT = 2,	  /* accept's return is watched at sys_exit */
	CONFIG_ACCEPT_RETURN = 4, /* accept's return is watched by fexit */
	CONFIG_SCHED = 8,	  /* wake-ups and switches are watched */
	CONFIG_CONTENT = 16,	  /* the first bytes of first writes are looked at */
};

struct config {
	u64 ttft_threshold; /* ns; a longer TTFT leaves as a record */
	u64 gap_threshold;  /* ns; a longer gap leaves as a record */
	u64 sample_mask;    /* an exchange whose hash & mask is 0 leaves as a record */
	u64 flags;	    /* enum config_flag */
	u64 ttft_objective; /* ns; an exchange with a longer TTFT missed it */
	u64 gap_objective;  /* ns; an exchange with a longer gap missed it */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct config);
} config_map SEC(".maps");

/* What tells user space to look again. Of its own, since user space writes the
 * configuration whole. */
struct stirred {
	u64 backlogged; /* sends that returned before all had left */
	u64 listens;	/* sockets that began to listen, and watched ones that ended to */
	u64 forks;	/* threads and processes that watched ones began */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stirred);
} stirred_map SEC(".maps");

static __always_inline struct stirred *stirred(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&stirred_map, &zero);
}

/* The newest of stirred.listens. */
struct listening {
	u32 netns;
	u32 tgid; /* of the process that began to; 0: a watched socket ended */
	u16 port;
	u16 reserved;
};

#define LISTENINGS 64 /* a power of two */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, LISTENINGS);
	__type(key, u32);
	__type(value, struct listening);
} listening_map SEC(".maps");

#define COUNT(field) __sync_fetch_and_add(&(field), 1)

static __always_inline struct config *config(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&config_map, &zero);
}

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Who was woken by an arrival. sk_data_ready leaves a mark on its CPU; the first
 * wake-up of a watched thread there takes it (sock_def_readable wakes
 * synchronously, through epoll too). */
#pragma once

#include "kernel.h"
#include "histogram.h"

#define MARK_VALID_NS 20000
#define WAKE_SLOTS 65536 /* a power of two */
#define MAX_ROLES 64

struct mark {
	u64 t; /* ns, of the arrival; 0: taken */
	u64 cookie;
	u32 tgid; /* of the reading process; 0 until known */
	u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct mark);
} marks SEC(".maps");

struct wake {
	u64 cookie;  /* of the connection */
	u64 arrived; /* ns, of the arrival that woke */
	u64 ran;     /* ns; 0: not yet */
	u32 tid;     /* the woken thread */
	u32 reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WAKE_SLOTS);
	__type(key, u32);
	__type(value, struct wake);
} wakes SEC(".maps");

/* A watched thread. token names the arrival that its present activity goes back
 * to, directly or by a chain of wake-ups inside its process. */
struct thread {
	u64 waking;	  /* ns; 0: not waiting for a CPU after a wake-up */
	u64 preempted;	  /* ns; 0: not waiting for a CPU after a pre-emption */
	u64 active_since; /* ns, when it first ran after its last sleep */
	u64 token_cookie; /* 0: none */
	u64 token_arrived;
	u32 role;
	u32 port;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

struct thread_key {
	u32 role;
	u32 port;
};

/* The threads to mark, by tid; only read by the task iterator. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, struct thread_key);
} thread_marks SEC(".maps");

struct role_stats {
	u64 preemptions; /* waits after one; the others began with a wake-up */
	u64 reserved;
	struct hist wait; /* wake-up to running, and pre-empted to running */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_ROLES);
	__type(key, u32);
	__type(value, struct role_stats);
} roles SEC(".maps");

static __always_inline struct wake *wake_of(u64 cookie)
{
	u32 i = (u32)cookie & (WAKE_SLOTS - 1);

	return bpf_map_lookup_elem(&wakes, &i);
}

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The traced tier: one record for an exchange's first content, or for a long gap. */
#pragma once

#include "conn.h"
#include "config.h"
#include "lost.h"

enum record_kind { RECORD_TTFT = 1, RECORD_GAP };

struct record {
	u64 t;	   /* ns, when the write left */
	u64 begin; /* ns, start of the interval */
	u64 cookie;
	u64 established;
	u64 accepted;
	u64 stages[STAGES]; /* ns; they add up to t - begin */
	u32 netns;
	u32 exchange;
	u32 port;
	u32 step_count;
	u32 pos;   /* of the write's last byte */
	u16 kind;  /* enum record_kind */
	u16 flags; /* enum conn_flag */
	u8 remote[16];
	u16 remote_port; /* host byte order */
	u16 family;
	u32 reserved;
	struct step steps[STEPS];
};

#define RING_SIZE (4 << 20)

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, RING_SIZE);
} records SEC(".maps");

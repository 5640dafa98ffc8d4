/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Log-linear histograms with the buckets of attribution/histogram.go: 64 steps
 * in each power of two from 2^10 ns to 2^38 ns, relative error at most 1/129. */
#pragma once

#include "kernel.h"

#define HIST_MIN_SHIFT 10
#define HIST_MAX_SHIFT 38
#define HIST_SUB_BITS 6
#define HIST_BUCKETS (((HIST_MAX_SHIFT - HIST_MIN_SHIFT) << HIST_SUB_BITS) + 2)

/* Shared by all CPUs and added to atomically: per-CPU copies would not fit the
 * memory budget on a node of 256 CPUs. */
struct hist {
	u64 sum; /* ns */
	u64 max; /* ns */
	u32 counts[HIST_BUCKETS];
	u32 reserved[2];
};

static __always_inline u32 log2_64(u64 v)
{
	u32 r = 0;

	/* clang-format off */
	if (v >> 32) { v >>= 32; r += 32; }
	if (v >> 16) { v >>= 16; r += 16; }
	if (v >> 8) { v >>= 8; r += 8; }
	if (v >> 4) { v >>= 4; r += 4; }
	if (v >> 2) { v >>= 2; r += 2; }
	/* clang-format on */
	return r + (v >> 1);
}

/* A global function: the verifier looks at it once, not at each of its branches
 * again wherever it is called. */
__noinline u32 hist_bucket(u64 v)
{
	u32 shift;

	if (v < (1ULL << HIST_MIN_SHIFT))
		return 0;
	if (v >= (1ULL << HIST_MAX_SHIFT))
		return HIST_BUCKETS - 1;
	shift = log2_64(v);
	return 1 + ((shift - HIST_MIN_SHIFT) << HIST_SUB_BITS) +
	       ((v >> ((shift - HIST_SUB_BITS) & 63)) & ((1 << HIST_SUB_BITS) - 1));
}

/* A shorter part of an interval is left to the engine, which gets the rest: its
 * two atomic additions would cost more than they tell. */
#define HIST_RESOLUTION_NS (1ULL << HIST_MIN_SHIFT)

/* Adds a sample whose sum user space can tell from others. */
static __always_inline void hist_count(struct hist *h, u64 v)
{
	u32 b = hist_bucket(v);

	if (b >= HIST_BUCKETS)
		return;
	__sync_fetch_and_add(&h->counts[b], 1);
	/* Two CPUs may race here; the loser's maximum is off by one sample. */
	if (v > h->max)
		h->max = v;
}

static __always_inline void hist_add(struct hist *h, u64 v)
{
	hist_count(h, v);
	__sync_fetch_and_add(&h->sum, v);
}

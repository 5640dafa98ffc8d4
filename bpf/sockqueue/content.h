/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a response write is, from its first bytes. They are looked at here, on
 * the program's stack, and nowhere else: no map and no record ever holds them. */
#pragma once

#include "../include/conn.h"

#define HEAD_BYTES 320	  /* what is looked at */
#define SMALL_WRITE 40	  /* a write that may be a closing chunk or [DONE] */
#define LOOKS 8		  /* writes of an exchange that are looked at */
#define INTERIM_BYTES 25  /* "HTTP/1.1 100 Continue\r\n\r\n" */
#define LAST_CHUNK_BYTES 5 /* "0\r\n\r\n" */

/* Without the content: only lengths tell. */
static __always_inline u8 class_by_length(u64 len, u8 phase)
{
	if (len == LAST_CHUNK_BYTES)
		return CLASS_END;
	if (phase == PHASE_REQUEST && len == INTERIM_BYTES)
		return CLASS_INTERIM;
	return CLASS_CONTENT;
}

/* The first bytes of the message, and its last four, in user memory. */
struct ends {
	void *head;
	u64 head_len;
	void *tail;
};

static __always_inline int user_ends(const struct msghdr *msg, u64 len, struct ends *e)
{
	const struct iov_iter *it = &msg->msg_iter;
	const struct iovec *v;
	struct iovec first, last;
	u64 n;

	if (bpf_core_enum_value_exists(enum iter_type, ITER_UBUF) &&
	    it->iter_type == bpf_core_enum_value(enum iter_type, ITER_UBUF)) {
		e->head = (char *)it->ubuf + it->iov_offset;
		e->head_len = len;
		e->tail = (char *)e->head + len - 4;
		return 0;
	}
	if (it->iter_type != bpf_core_enum_value(enum iter_type, ITER_IOVEC))
		return -1; /* pages of a file: sendfile */
	if (bpf_core_field_exists(it->__iov))
		v = it->__iov;
	else
		v = BPF_CORE_READ((struct iov_iter___old *)it, iov);
	n = it->nr_segs;
	if (!n || bpf_probe_read_kernel(&first, sizeof(first), v) ||
	    bpf_probe_read_kernel(&last, sizeof(last), v + (n - 1)))
		return -1;
	e->head = (char *)first.iov_base + it->iov_offset;
	e->head_len = first.iov_len - it->iov_offset;
	e->tail = (char *)last.iov_base + last.iov_len - 4;
	return 0;
}

#define U32_OF(a, b, c, d) ((u32)(a) | (u32)(b) << 8 | (u32)(c) << 16 | (u32)(d) << 24)

static __always_inline u64 load64(const char *p)
{
	u64 v;

	__builtin_memcpy(&v, p, 8);
	return v;
}

/* An event that names the role and carries an empty or no text. */
static __always_inline int is_role_only(const char *b, u32 n)
{
	/* "content and ":"" or ":null, as little-endian words */
	const u64 key = 0x746e65746e6f6322ULL; /* "content */
	int empty = 0;

	for (u32 i = 0; i + 13 <= HEAD_BYTES; i++) {
		if (load64(b + i) != key)
			continue;
		if (b[i + 8] != '"' || b[i + 9] != ':')
			continue;
		if ((b[i + 10] == '"' && b[i + 11] == '"') || b[i + 10] == 'n')
			empty = 1;
		else
			return 0;
	}
	return empty;
}

static __noinline int class_of(const struct msghdr *msg, u64 len, u8 phase)
{
	char b[HEAD_BYTES] = {};
	struct ends e;
	u32 tail = 0;
	u64 n;

	if (user_ends(msg, len, &e))
		return class_by_length(len, phase);
	n = e.head_len < HEAD_BYTES ? e.head_len : HEAD_BYTES;
	/* Where the page is not there the lengths must do. */
	if (n > HEAD_BYTES || bpf_probe_read_user(b, n, e.head))
		return class_by_length(len, phase);
	if (b[0] == 'H' && b[1] == 'T' && b[2] == 'T' && b[3] == 'P' && b[4] == '/') {
		if (b[9] == '1')
			return CLASS_INTERIM;
		bpf_probe_read_user(&tail, sizeof(tail), e.tail);
		return tail == U32_OF('\r', '\n', '\r', '\n') ? CLASS_HEADERS : CLASS_CONTENT;
	}
	if (len <= SMALL_WRITE) {
		if (b[0] == '0' && b[1] == '\r')
			return CLASS_END;
		for (u32 i = 0; i < SMALL_WRITE - 6; i++)
			if (b[i] == '[' && b[i + 1] == 'D' && b[i + 2] == 'O' && b[i + 3] == 'N')
				return CLASS_END;
		return CLASS_CONTENT;
	}
	return is_role_only(b, n) ? CLASS_ROLE : CLASS_CONTENT;
}

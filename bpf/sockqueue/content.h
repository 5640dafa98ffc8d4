/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What a response write is, from its first bytes. They are looked at here, on
 * the program's stack, and nowhere else: no map and no record ever holds them. */
#pragma once

#include "../include/conn.h"

#define HEAD_BYTES 320	   /* what is looked at */
#define SMALL_WRITE 40	   /* a write that may be a closing chunk or [DONE] */
#define LOOKS 8		   /* writes of an exchange that are looked at */
#define INTERIM_BYTES 25   /* "HTTP/1.1 100 Continue\r\n\r\n" */
#define LAST_CHUNK_BYTES 5 /* "0\r\n\r\n" */

/* Without the content: only lengths tell. */
static __always_inline u8 class_by_length(u64 len, u8 phase)
{
	if (len <= LAST_CHUNK_BYTES)
		return CLASS_END; /* in one write, or "0\r\n" and "\r\n" */
	if (phase == PHASE_REQUEST && len == INTERIM_BYTES)
		return CLASS_INTERIM;
	return CLASS_CONTENT;
}

/* Where the message lies in user memory: its first bytes and its last segment. */
struct ends {
	void *head;
	u64 head_len;
	void *last;
	u64 last_len;
};

static __always_inline int user_ends(const struct msghdr *msg, u64 len, struct ends *e)
{
	const struct iov_iter *it = &msg->msg_iter;
	const struct iovec *v;
	struct iovec first, last;
	u64 n;

	if (bpf_core_enum_value_exists(enum iter_type, ITER_UBUF) &&
	    it->iter_type == bpf_core_enum_value(enum iter_type, ITER_UBUF)) {
		/* Read as a number: some verifiers take the union for a vector and
		 * then refuse to add to it. */
		e->head = (char *)BPF_CORE_READ(it, ubuf) + it->iov_offset;
		e->head_len = len;
		e->last = e->head;
		e->last_len = len;
		return 0;
	}
	if (it->iter_type != bpf_core_enum_value(enum iter_type, ITER_IOVEC))
		return -1; /* pages of a file: sendfile */
	if (bpf_core_field_exists(it->__iov))
		v = BPF_CORE_READ(it, __iov);
	else
		v = BPF_CORE_READ((struct iov_iter___old *)it, iov);
	n = it->nr_segs;
	if (!n || bpf_probe_read_kernel(&first, sizeof(first), v) ||
	    bpf_probe_read_kernel(&last, sizeof(last), v + (n - 1)))
		return -1;
	e->head = (char *)first.iov_base + it->iov_offset;
	e->head_len = first.iov_len - it->iov_offset;
	e->last = last.iov_base;
	e->last_len = last.iov_len;
	return 0;
}

/* An answer ends like a header, with an empty line, if its last chunk is in the
 * same write: then that chunk's own line, "0", stands alone before it. */
static __always_inline int is_header_alone(struct ends *e)
{
	char b[12] = {};
	u64 n = e->last_len < 7 ? e->last_len : 7, at = 7 - n;

	/* The verifier takes no subtraction from a pointer to the stack. */
	asm volatile("" : "+r"(at));
	if (n < 4 || n > 7 || at > 3 || bpf_probe_read_user(b + at, n, (char *)e->last + e->last_len - n))
		return 0;
	if (b[3] != '\r' || b[4] != '\n' || b[5] != '\r' || b[6] != '\n')
		return 0;
	return !(b[2] == '0' && (n < 6 || b[1] == '\n'));
}

static __always_inline u64 load64(const char *p)
{
	u64 v;

	__builtin_memcpy(&v, p, 8);
	return v;
}

/* What was looked at. */
struct head {
	char b[HEAD_BYTES];
};

/* An event that names the role and carries an empty or no text. The two that scan
 * are global functions: the verifier looks at them once, not again for each state
 * that they are called in. */
__noinline int is_role_only(struct head *h)
{
	/* "content and ":"" or ":null, as little-endian words */
	const u64 key = 0x746e65746e6f6322ULL; /* "content */
	int empty = 0;
	char *b;

	if (!h)
		return 0;
	b = h->b;
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

/* A closing chunk or [DONE]. */
__noinline int is_end(struct head *h)
{
	char *b;

	if (!h)
		return 0;
	b = h->b;
	if (b[0] == '\r' || (b[0] == '0' && b[1] == '\r'))
		return 1;
	for (u32 i = 0; i < SMALL_WRITE - 6; i++)
		if (b[i] == '[' && b[i + 1] == 'D' && b[i + 2] == 'O' && b[i + 3] == 'N')
			return 1;
	return 0;
}

static __always_inline u32 load32(const char *p)
{
	u32 v;

	__builtin_memcpy(&v, p, 4);
	return v;
}

#define PREFIX_BYTES 16
#define WORD_DATA 0x61746164 /* "data" */

/* A server-sent event, alone or as a chunk: "data: " or "1f4\r\ndata: ". */
static __always_inline int is_event(const char *b)
{
	if (load32(b) == WORD_DATA)
		return 1;
	for (int i = 1; i < 6; i++)
		if (b[i] == '\r')
			return load32(b + i + 2) == WORD_DATA;
	return 0;
}

static __noinline int class_of_event(const struct msghdr *msg, u64 len, u8 phase)
{
	struct head h = {};
	struct ends e;
	u64 n;

	if (user_ends(msg, len, &e))
		return class_by_length(len, phase);
	n = e.head_len < HEAD_BYTES ? e.head_len : HEAD_BYTES;
	if (n > HEAD_BYTES || bpf_probe_read_user(h.b, n, e.head))
		return class_by_length(len, phase);
	if (len <= SMALL_WRITE)
		return is_end(&h) ? CLASS_END : CLASS_CONTENT;
	return is_role_only(&h) ? CLASS_ROLE : CLASS_CONTENT;
}

#define LOOK_FURTHER -1

/* The first few bytes tell whether it is worth looking at more: clearing and
 * scanning HEAD_BYTES takes most of a microsecond. Not in one call with that: both
 * together would not fit the stack. */
static __noinline int class_of_prefix(struct conn *c, const struct msghdr *msg, u64 len)
{
	char b[PREFIX_BYTES] = {};
	u8 phase = c->phase;
	struct ends e;
	u64 n;

	c->looked++;

	if (user_ends(msg, len, &e))
		return class_by_length(len, phase);
	n = e.head_len < PREFIX_BYTES ? e.head_len : PREFIX_BYTES;
	/* Where the page is not there the lengths must do. */
	if (n > PREFIX_BYTES || bpf_probe_read_user(b, n, e.head))
		return class_by_length(len, phase);
	if (b[0] == 'H' && b[1] == 'T' && b[2] == 'T' && b[3] == 'P' && b[4] == '/') {
		c->flags |= CONN_HTTP;
		if (b[9] == '1')
			return CLASS_INTERIM;
		return is_header_alone(&e) ? CLASS_HEADERS : CLASS_CONTENT;
	}
	if (phase == PHASE_REQUEST && !(c->flags & CONN_HTTP) && !is_event(b)) {
		c->flags |= CONN_OPAQUE;
		return CLASS_CONTENT;
	}
	/* What goes on beyond the bytes looked at, may well hold text. */
	if (len <= SMALL_WRITE || (len <= HEAD_BYTES && is_event(b)))
		return LOOK_FURTHER;
	return CLASS_CONTENT;
}

static __always_inline u8 class_of(struct conn *c, const struct msghdr *msg, u64 len)
{
	int class = class_of_prefix(c, msg, len);

	return class == LOOK_FURTHER ? class_of_event(msg, len, c->phase) : class;
}

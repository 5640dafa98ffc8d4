/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A watched connection: scalar state of its exchange and the flight recorder of
 * its last steps, kept in the socket's own storage. */
#pragma once

#include "kernel.h"
#include "stage.h"

#define STEPS 32 /* a power of two */
#define WRITES 4 /* a power of two: writes of one connection that have not left */

enum step_kind {
	STEP_ARRIVED = 1, /* pos bytes became readable */
	STEP_RAN,	  /* the thread that the arrival woke runs */
	STEP_HANDED,	  /* from here on it is for the reading thread, another one, to read */
	STEP_READ,	  /* the application has copied up to pos */
	STEP_SEND,	  /* a write begins that will end at pos */
	STEP_SENT,	  /* a write has returned; pos bytes have left */
	STEP_LEFT,	  /* pos bytes have left, seen later than the return */
	STEP_ESTABLISHED,
	STEP_ACCEPTED, /* class 1: an upper bound */
	STEP_CUT,      /* the newest write ends at pos; class 1: it took something */
};

struct step {
	u64 t;	   /* ns, CLOCK_MONOTONIC */
	u32 pos;   /* low half of the position */
	u16 kind;  /* enum step_kind */
	u16 class; /* of STEP_SEND: enum write_class; of STEP_READ: 1 if no read was seen */
};

enum write_class {
	CLASS_CONTENT, /* carries content, or nothing is known of it */
	CLASS_HEADERS, /* an HTTP header and nothing more */
	CLASS_INTERIM, /* 100 Continue and its like: no answer yet */
	CLASS_ROLE,    /* an event that names the role, without text */
	CLASS_END,     /* the closing chunk or [DONE]: no record */
};

struct write {
	u64 start;  /* ns, when the application handed it in */
	u32 end;    /* TCP sequence number after its last byte */
	u8 class;   /* enum write_class */
	u8 first;   /* the first response write of its exchange */
	u8 content; /* the first that carries content */
	u8 joined;  /* several writes, as one */
};

enum role { ROLE_LISTENER = 1, ROLE_CONN };

enum phase {
	PHASE_UNKNOWN, /* met in mid-life */
	PHASE_IDLE,
	PHASE_REQUEST,
	PHASE_RESPONSE,
};

enum conn_flag {
	CONN_ACCEPT_PENDING = 1,  /* its accept has not been seen */
	CONN_ACCEPT_INTERVAL = 2, /* accepted is an upper bound */
	CONN_CONTENT = 4,	  /* this exchange's content has begun */
	CONN_GAPS = 8,		  /* prev_left is valid for a gap */
	CONN_UNREAD_SPLIT = 16,	  /* no read was seen for bytes that were taken */
	CONN_HTTP = 32,		  /* an HTTP/1 header was seen */
	CONN_OPAQUE = 64,	  /* no HTTP/1: its writes cannot be told apart */
	CONN_GAP_MISSED = 128,	  /* a gap of this exchange missed the objective */
};

/* The stages of TTFT up to the first response write, fixed when it is handed in. */
struct ttft {
	u64 start;		  /* arrival of the last request byte */
	u64 stages[STAGE_ENGINE]; /* accept_wait to reader */
	u64 unexplained;
};

struct conn {
	u64 cookie;
	u64 listener;	   /* the address of its struct sock, if it is one: a child begins as a copy */
	u64 established;   /* ns; 0 where the connection is older than the agent */
	u64 accepted;	   /* ns; 0 where unknown */
	u64 unaccepted;	   /* ns, the last time it was seen waiting to be accepted */
	u64 first_arrived; /* ns, of the oldest bytes that were not yet read */
	u64 last_arrived;  /* ns, of the newest bytes */
	u64 read;	   /* ns, of the newest read */
	u64 read_arrived;  /* ns, when the last byte of that read had arrived */
	u64 ran;	   /* ns, the woken thread runs; 0: none was woken */
	u64 handed;	   /* ns, since when it is for another thread to read; 0: the woken one read */
	u64 prev_left;	   /* ns, when the record before left */
	struct ttft ttft;
	u32 first_arrived_pos;
	u32 arrived_pos;
	u32 read_pos;
	u32 request_end;  /* arrived_pos when the answer began */
	u32 send_end;	  /* sequence number after the newest write */
	u32 left_base;	  /* position minus sequence number, outbound */
	u32 exchange;	  /* ordinal, from 1 */
	u32 tgid;	  /* the process that reads; 0 until known */
	u32 port;	  /* index into ports */
	u32 rwnd_jiffies; /* when it was marked */
	u32 sndbuf_jiffies;
	u32 drops; /* of a listener: connections refused when it was marked */
	u32 walk;  /* the last one that has counted it */
	u32 write_head;
	u32 write_tail;
	u32 step_count;
	u8 role;
	u8 phase;
	u8 flags;
	u8 looked; /* writes of this exchange whose content was looked at */
	u32 reserved;
	struct write writes[WRITES];
	struct step steps[STEPS];
};

/* BPF_F_CLONE: a child inherits its listener's mark when it is created. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC | BPF_F_CLONE);
	__type(key, int);
	__type(value, struct conn);
} conns SEC(".maps");

/* What its port refused before is not counted. */
static __always_inline void mark_listener(struct conn *c, struct sock *sk, u32 port)
{
	c->role = ROLE_LISTENER;
	c->listener = (u64)sk;
	c->drops = sk->sk_drops.counter;
	c->port = port;
}

/* Connections that the listener has refused since then. */
static __always_inline u32 refused(const struct conn *c, const struct sock *sk)
{
	return (u32)sk->sk_drops.counter - c->drops;
}

static __always_inline struct conn *conn_of(const struct sock *sk)
{
	return bpf_sk_storage_get(&conns, (void *)sk, 0, 0);
}

/* No atomic: all hooks but those at a system call's return hold the socket's lock,
 * and where one of these meets another on the same few nanoseconds, a step is
 * overwritten. User space sees that its replay differs and counts it. */
static __always_inline void step(struct conn *c, u64 t, u16 kind, u32 pos, u16 class)
{
	struct step *s = &c->steps[c->step_count++ & (STEPS - 1)];

	s->t = t;
	s->pos = pos;
	s->kind = kind;
	s->class = class;
}

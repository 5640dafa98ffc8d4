/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The counted tier: an exchange's stages, computed where the steps happen.
 * attribution/exchange.go computes the same from the steps of a record. */
#pragma once

#include "../include/accept.h"
#include "../include/position.h"
#include "../include/record.h"
#include "../include/wake.h"

static __always_inline u64 later_by(u64 t, u64 than)
{
	return t > than ? t - than : 0;
}

/* Fixes the stages up to the read, at the first response write. */
static __always_inline void fix_ttft(struct conn *c, struct config *cfg)
{
	struct ttft *f = &c->ttft;
	u64 at = c->read_arrived;

	f->start = at;
	f->unexplained = 0;
	f->stages[STAGE_ACCEPT_WAIT] = later_by(c->accepted, at);
	at += f->stages[STAGE_ACCEPT_WAIT];
	f->stages[STAGE_WAKE_TO_RUN] = later_by(c->ran, at);
	at += f->stages[STAGE_WAKE_TO_RUN];
	f->stages[STAGE_READER] = later_by(c->read, at);
	f->stages[STAGE_RUNTIME_HANDOFF] = 0;
	if (c->handed) {
		u64 from = c->handed > at ? c->handed : at;

		f->stages[STAGE_RUNTIME_HANDOFF] = later_by(c->read, from);
		f->stages[STAGE_READER] -= f->stages[STAGE_RUNTIME_HANDOFF];
	}
	/* Who was woken is not known: the way to the read cannot be split. */
	if (!(cfg->flags & CONFIG_SCHED) || (c->flags & CONN_UNREAD_SPLIT)) {
		f->unexplained = f->stages[STAGE_READER];
		f->stages[STAGE_READER] = 0;
	}
}

static __always_inline int sampled(struct conn *c, struct config *cfg)
{
	u64 h = (c->cookie * 0x9e3779b97f4a7c15ULL) ^ ((u64)c->exchange * 0xc2b2ae3d27d4eb4fULL);

	return ((h >> 32) & cfg->sample_mask) == 0;
}

/* An interval that ended with a write, and its partition. */
struct outcome {
	u64 t;
	u64 begin;
	u64 stages[STAGES];
	u32 pos;
	u16 kind; /* enum record_kind */
	u16 reserved;
};

/* The reader comes by itself now and then. Between an eighth and a quarter of the ring
 * it is woken: it must not be for every record, and cannot miss that many. */
static __always_inline u64 wakeup(void)
{
	u64 waiting = bpf_ringbuf_query(&records, BPF_RB_AVAIL_DATA);

	return waiting > RING_SIZE / 8 && waiting < RING_SIZE / 4 ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

static __noinline int emit(struct conn *c, struct sock *sk, struct outcome *o)
{
	struct record *r = bpf_ringbuf_reserve(&records, sizeof(*r), 0);

	if (!r) {
		lost(LOST_RING_FULL);
		return done();
	}
	r->t = o->t;
	r->begin = o->begin;
	r->cookie = c->cookie;
	r->established = c->established;
	r->accepted = c->accepted;
	for (int i = 0; i < STAGES; i++)
		r->stages[i] = o->stages[i];
	r->netns = sk->__sk_common.skc_net.net->ns.inum;
	r->exchange = c->exchange;
	r->port = c->port;
	r->step_count = c->step_count;
	r->pos = o->pos;
	r->kind = o->kind;
	r->flags = c->flags;
	r->family = sk->__sk_common.skc_family;
	r->remote_port = bpf_ntohs(sk->__sk_common.skc_dport);
	__builtin_memset(r->remote, 0, sizeof(r->remote));
	if (r->family == AF_INET6)
		bpf_core_read(r->remote, 16, &sk->__sk_common.skc_v6_daddr);
	else
		bpf_core_read(r->remote, 4, &sk->__sk_common.skc_daddr);
	r->reserved = 0;
	__builtin_memcpy(r->steps, c->steps, sizeof(r->steps));
	bpf_ringbuf_submit(r, wakeup());
	return done();
}

/* The stage that took most. */
static __always_inline u32 guilty(const u64 *stages)
{
	u32 most = 0;

	for (u32 i = 1; i < STAGES; i++)
		if (stages[i] > stages[most & 7])
			most = i;
	return most < STAGES ? most : 0;
}

/* The first response write, or the first with content, has left at t. */
static __noinline int answered(struct conn *c, struct sock *sk, struct write *w, u64 t)
{
	struct config *cfg = config();
	struct port *p = port_of(c->port);
	struct outcome o = {.t = t, .begin = c->ttft.start, .kind = RECORD_TTFT};
	u64 begin = o.begin, sum = c->ttft.unexplained, total;

	if (!cfg || !p)
		return done();
	if (!begin) { /* the request arrived before it could be seen */
		if (w->first)
			COUNT(p->untimed);
		return done();
	}
	total = later_by(t, begin);
	for (int i = 0; i < STAGE_ENGINE; i++) {
		o.stages[i] = c->ttft.stages[i];
		sum += o.stages[i];
	}
	if (w->start < begin || t < w->start || sum > total) {
		if (w->first)
			COUNT(p->untimed);
		lost(LOST_IMPOSSIBLE_TIME);
		return done();
	}
	if (!w->content) {
		hist_add(&p->first_write, total);
		return done();
	}
	o.stages[STAGE_UNEXPLAINED] = c->ttft.unexplained;
	o.stages[STAGE_ENGINE] = later_by(w->start, begin + sum);
	o.stages[STAGE_SEND_QUEUE] = later_by(total, sum + o.stages[STAGE_ENGINE]);
	o.pos = w->end + c->left_base;
	hist_add(w->first ? &p->ttft_at_once : &p->ttft_later, total);
	for (int i = 0; i < STAGES; i++)
		if (o.stages[i] >= HIST_RESOLUTION_NS && i != STAGE_ENGINE)
			hist_add(&p->ttft_stages[i], o.stages[i]);
	if (o.stages[STAGE_ENGINE] >= HIST_RESOLUTION_NS)
		hist_count(&p->ttft_stages[STAGE_ENGINE], o.stages[STAGE_ENGINE]);
	if (total > cfg->ttft_objective)
		COUNT(p->ttft_missed[guilty(o.stages)]);
	if (total > cfg->ttft_threshold || sampled(c, cfg))
		return emit(c, sk, &o);
	return done();
}

/* A later record has left at t. */
static __noinline int gap_ended(struct conn *c, struct sock *sk, struct write *w, u64 t)
{
	struct config *cfg = config();
	struct port *p = port_of(c->port);
	struct outcome o = {.t = t, .begin = c->prev_left, .kind = RECORD_GAP};
	u64 gap = later_by(t, o.begin), engine = later_by(w->start, o.begin);

	if (!cfg || !p)
		return done();
	if (engine > gap)
		engine = gap;
	o.stages[STAGE_ENGINE] = engine;
	o.stages[STAGE_SEND_QUEUE] = gap - engine;
	o.pos = w->end + c->left_base;
	hist_add(&p->gap, gap);
	if (engine >= HIST_RESOLUTION_NS)
		hist_count(&p->gap_engine, engine);
	if (gap - engine >= HIST_RESOLUTION_NS)
		hist_add(&p->gap_send_queue, gap - engine);
	if (gap > cfg->gap_objective && !(c->flags & CONN_GAP_MISSED)) {
		c->flags |= CONN_GAP_MISSED;
		COUNT(p->gap_missed[guilty(o.stages)]);
	}
	if (gap > cfg->gap_threshold)
		return emit(c, sk, &o);
	return done();
}

static __noinline int write_left(struct conn *c, struct sock *sk, struct write *w, u64 t)
{
	int r = 0;

	if (w->first || w->content)
		r = answered(c, sk, w, t);
	else if (w->class == CLASS_CONTENT && (c->flags & CONN_GAPS))
		r = gap_ended(c, sk, w, t);
	if (w->class == CLASS_CONTENT) {
		c->prev_left = t;
		c->flags |= CONN_GAPS;
	}
	return r;
}

/* Ends every write whose last byte has left. Two CPUs may come here at once: the
 * one that moves the head owns the write. */
static __always_inline void writes_left(struct conn *c, struct sock *sk, u32 snd_nxt, u64 t)
{
	for (int i = 0; i < WRITES; i++) {
		u32 head = c->write_head;
		struct write w;

		if (head == c->write_tail)
			return;
		w = c->writes[head & (WRITES - 1)];
		if (before(snd_nxt, w.end))
			return;
		if (__sync_val_compare_and_swap(&c->write_head, head, head + 1) != head)
			return;
		if (write_left(c, sk, &w, t))
			return;
	}
}

/* Writes may have left since the last hook, which none saw: set free by an
 * acknowledgement while the hooks for that were not attached. The socket knows
 * when its newest packet left. now is at the latest. */
static __always_inline void left_unseen(struct conn *c, struct sock *sk, struct tcp_sock *tp, u64 now)
{
	u64 t = tp->tcp_wstamp_ns;

	if (c->write_head == c->write_tail || before(tp->snd_nxt, c->writes[c->write_head & (WRITES - 1)].end))
		return;
	if (t > now || t < c->writes[c->write_head & (WRITES - 1)].start)
		t = now;
	step(c, t, STEP_LEFT, tp->snd_nxt + c->left_base, 0);
	writes_left(c, sk, tp->snd_nxt, t);
}

/* Bytes up to position pos have been taken at c->read: by which thread, and who
 * had been woken for them? */
static __always_inline void who_read(struct conn *c)
{
	struct wake *w = wake_of(c->cookie);
	struct thread *th;
	struct task_struct *me;

	c->ran = 0;
	c->handed = 0;
	if (!w || w->cookie != c->cookie || w->arrived < c->first_arrived || !w->ran)
		return;
	c->ran = w->ran;
	step(c, w->ran, STEP_RAN, c->read_pos, 0);
	me = bpf_get_current_task_btf();
	if (w->tid == (u32)me->pid)
		return;
	th = bpf_task_storage_get(&threads, me, 0, 0);
	if (!th)
		return;
	/* Where no chain of wake-ups leads from the woken thread to this one, a timer
	 * or others woke it: until then it is the application's own delay. */
	c->handed = th->active_since;
	if (c->handed < w->ran || (th->token_cookie == c->cookie && th->token_arrived == w->arrived))
		c->handed = w->ran;
	step(c, c->handed, STEP_HANDED, c->read_pos, 0);
}

static __always_inline void request_read(struct conn *c, u32 pos, u64 t)
{
	if (c->phase != PHASE_REQUEST && (c->phase != PHASE_RESPONSE || before(c->request_end, pos))) {
		c->phase = PHASE_REQUEST;
		c->exchange++;
	}
	if (pos == c->arrived_pos || before(c->first_arrived_pos, pos))
		c->read_arrived = c->last_arrived;
	else
		c->read_arrived = c->first_arrived;
	c->read = t;
	c->read_pos = pos;
	c->flags &= ~CONN_UNREAD_SPLIT;
}

/* A write of the application begins that ends at sequence number end. */
static __always_inline void write_begins(struct conn *c, struct tcp_sock *tp, struct config *cfg, u32 end, u64 t,
					 u8 class)
{
	u32 tail = c->write_tail;
	struct write w = {.start = t, .end = end, .class = class};

	c->send_end = end;
	c->left_base = (u32)pos_written(tp) - tp->write_seq;
	if (c->phase == PHASE_REQUEST && class != CLASS_INTERIM) {
		struct port *p = port_of(c->port);

		if (p && c->read_pos != c->arrived_pos)
			COUNT(p->early_answers);
		c->phase = PHASE_RESPONSE;
		c->request_end = c->arrived_pos;
		c->flags &= ~(CONN_CONTENT | CONN_GAPS | CONN_GAP_MISSED);
		fix_ttft(c, cfg);
		w.first = 1;
	}
	if (c->phase == PHASE_RESPONSE && class == CLASS_CONTENT && !(c->flags & CONN_CONTENT)) {
		c->flags |= CONN_CONTENT;
		w.content = 1;
	}
	step(c, t, STEP_SEND, end + c->left_base, class);
	if (tail - c->write_head >= WRITES) {
		c->writes[(tail - 1) & (WRITES - 1)].end = end;
		c->writes[(tail - 1) & (WRITES - 1)].joined = 1;
		lost(LOST_WRITE_QUEUE);
		return;
	}
	c->writes[tail & (WRITES - 1)] = w;
	c->write_tail = tail + 1;
}

/* The newest write took less than it offered, up to write_seq: it is cut there,
 * and one that took nothing (EAGAIN) never was. */
static __always_inline void write_cut(struct conn *c, u32 write_seq, int taken, u64 t)
{
	u32 tail = c->write_tail - 1;
	struct write *w = &c->writes[tail & (WRITES - 1)];

	c->send_end = write_seq;
	if (c->write_tail == c->write_head || !before(write_seq, w->end))
		return;
	step(c, t, STEP_CUT, write_seq + c->left_base, taken > 0);
	if (taken > 0 || w->joined) {
		w->end = write_seq;
		return;
	}
	if (w->first)
		c->phase = PHASE_REQUEST;
	if (w->content)
		c->flags &= ~CONN_CONTENT;
	c->write_tail = tail;
}

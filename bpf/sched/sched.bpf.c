//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* When the threads of watched processes are woken and when they run. A thread is
 * watched if it has our storage: for the others this is one pointer test. */
#include "../include/config.h"
#include "../include/lost.h"
#include "../include/wake.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline struct thread *thread_of(struct task_struct *p)
{
	return bpf_task_storage_get(&threads, p, 0, 0);
}

/* The thread that takes the arrival's mark becomes the connection's woken thread. */
static __always_inline int takes_mark(struct thread *th, struct task_struct *p, u64 t)
{
	u32 zero = 0;
	struct mark *m = bpf_map_lookup_elem(&marks, &zero);
	struct wake *w;

	if (!m || !m->t || t - m->t > MARK_VALID_NS || (m->tgid && m->tgid != (u32)p->tgid))
		return 0;
	w = wake_of(m->cookie);
	if (!w)
		return 0;
	if (w->cookie && w->cookie != m->cookie && t - w->arrived < 1000000000)
		lost(LOST_WAKE_COLLISION);
	w->cookie = 0; /* not valid while it is written */
	w->ran = 0;
	w->arrived = m->t;
	w->tid = p->pid;
	w->cookie = m->cookie;
	th->token_cookie = m->cookie;
	th->token_arrived = m->t;
	m->t = 0;
	return 1;
}

/* try_to_wake_up(), on the CPU of the one that wakes. */
SEC("tp_btf/sched_waking")
int BPF_PROG(waking, struct task_struct *p)
{
	struct thread *th = thread_of(p), *by;
	struct task_struct *me;
	u64 t;

	if (!th)
		return 0;
	t = bpf_ktime_get_ns();
	th->waking = t;
	if (takes_mark(th, p, t))
		return 0;
	/* Woken inside its process: it carries on what its waker works at. */
	me = bpf_get_current_task_btf();
	by = me->tgid == p->tgid ? thread_of(me) : 0;
	th->token_cookie = by ? by->token_cookie : 0;
	th->token_arrived = by ? by->token_arrived : 0;
	return 0;
}

static __always_inline void runs(struct thread *th, struct task_struct *p, u64 t)
{
	u64 since = th->waking > th->preempted ? th->waking : th->preempted;
	struct role_stats *r;
	struct wake *w;
	u32 role = th->role;

	if (!since)
		return;
	r = bpf_map_lookup_elem(&roles, &role);
	if (r) {
		hist_add(&r->wait, t - since);
		if (th->preempted > th->waking)
			__sync_fetch_and_add(&r->preemptions, 1);
	}
	if (th->waking) {
		th->active_since = t;
		w = th->token_cookie ? wake_of(th->token_cookie) : 0;
		if (w && w->cookie == th->token_cookie && w->tid == (u32)p->pid && !w->ran)
			w->ran = t;
	}
	th->waking = 0;
	th->preempted = 0;
}

/* __schedule(); prev_state 0 is a thread that would go on. */
SEC("tp_btf/sched_switch")
int BPF_PROG(switched, bool preempt, struct task_struct *prev, struct task_struct *next, u32 prev_state)
{
	struct thread *th = preempt || !prev_state ? thread_of(prev) : 0;
	u64 t = 0;

	if (th) {
		t = bpf_ktime_get_ns();
		th->preempted = t;
	}
	th = thread_of(next);
	if (th)
		runs(th, next, t ? t : bpf_ktime_get_ns());
	return 0;
}

/* A new thread, or a forked worker, is watched like its parent. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(forked, struct task_struct *parent, struct task_struct *child)
{
	struct thread *from = thread_of(parent), *to;
	struct stirred *s;

	if (!from)
		return 0;
	s = stirred();
	if (s)
		COUNT(s->forks);
	to = bpf_task_storage_get(&threads, child, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!to) {
		lost(LOST_THREAD_STORAGE);
		return 0;
	}
	to->role = from->role;
	to->port = from->port;
	return 0;
}

/* Marks the threads named in thread_marks, and renames their role. */
SEC("iter/task")
int mark_threads(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct thread_key *k;
	struct thread *th;
	u32 tid;

	if (!p)
		return 0;
	tid = p->pid;
	k = bpf_map_lookup_elem(&thread_marks, &tid);
	if (!k)
		return 0;
	th = bpf_task_storage_get(&threads, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!th) {
		lost(LOST_THREAD_STORAGE);
		return 0;
	}
	th->role = k->role;
	th->port = k->port;
	return 0;
}

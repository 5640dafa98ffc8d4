//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A connection's life in the accept queue: established, accepted, closed. */
#include "../include/accept.h"
#include "../include/position.h"
#include "../include/wake.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

static __always_inline void on_established(struct conn *c, struct sock *sk)
{
	struct config *cfg = config();
	u32 *watched = watched_as(sk);
	u64 key = (u64)sk, zero = 0;
	struct port *p;

	/* What was inherited is the listener's. The cookie is the child's own only now. */
	__builtin_memset(c, 0, sizeof(*c));
	if (!watched)
		return; /* the port is no longer watched */
	c->port = *watched;
	p = port_of(c->port);
	c->cookie = bpf_get_socket_cookie(sk);
	c->established = bpf_ktime_get_ns();
	c->phase = PHASE_IDLE;
	c->flags = CONN_ACCEPT_PENDING;
	c->role = ROLE_CONN;
	step(c, c->established, STEP_ESTABLISHED, 0, 0);
	if (p)
		COUNT(p->connections);
	if (cfg && (cfg->flags & CONFIG_ACCEPT_EXIT) && bpf_map_update_elem(&accepting, &key, &zero, BPF_ANY))
		lost(LOST_ACCEPTING_FULL);
}

static __always_inline void on_closed(struct conn *c, struct sock *sk)
{
	struct port *p = port_of(c->port);
	struct tcp_sock *tp = bpf_skc_to_tcp_sock(sk);
	u64 key = (u64)sk, *at;

	if (c->flags & CONN_ACCEPT_PENDING) {
		at = bpf_map_lookup_elem(&accepting, &key);
		if (at && *at)
			accept_known(c, *at, 1);
		bpf_map_delete_elem(&accepting, &key);
	}
	if (c->write_head != c->write_tail)
		lost(LOST_LEFT_UNSEEN);
	if (!p || !tp)
		return;
	__sync_fetch_and_add(&p->rwnd_jiffies, tp->chrono_stat[1] - c->rwnd_jiffies);
	__sync_fetch_and_add(&p->sndbuf_jiffies, tp->chrono_stat[2] - c->sndbuf_jiffies);
}

static __always_inline void note_listening(struct sock *sk, u32 tgid)
{
	struct stirred *s = stirred();
	struct listening *l;
	u32 slot;

	if (!s)
		return;
	slot = __sync_fetch_and_add(&s->listens, 1) & (LISTENINGS - 1);
	l = bpf_map_lookup_elem(&listening_map, &slot);
	if (!l)
		return;
	l->netns = sk->__sk_common.skc_net.net->ns.inum;
	l->port = sk->__sk_common.skc_num;
	l->tgid = tgid;
}

/* A port that is watched is listened on anew: its server restarted. Marked here, not
 * one connection is missed. */
static __always_inline void on_listen(struct sock *sk)
{
	u32 *port = watched_as(sk);
	struct conn *c;

	if (!port)
		return;
	c = bpf_sk_storage_get(&conns, sk, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!c) {
		lost(LOST_CONN_STORAGE);
		return;
	}
	mark_listener(c, sk, *port);
}

static __always_inline void on_unlisten(struct sock *sk)
{
	u32 *port = watched_as(sk);
	struct conn *c;
	struct port *p;

	if (!port)
		return;
	note_listening(sk, 0);
	c = conn_of(sk);
	p = port_of(*port);
	if (c && p && c->role == ROLE_LISTENER && c->port == *port)
		__sync_fetch_and_add(&p->accept_overflows, refused(c, sk));
}

/* inet_sk_set_state(), for every change of state of every TCP socket. */
SEC("tp_btf/inet_sock_set_state")
int BPF_PROG(state_changed, struct sock *sk, int old_state, int new_state)
{
	struct conn *c;

	if (new_state == TCP_LISTEN) {
		note_listening(sk, bpf_get_current_pid_tgid() >> 32);
		on_listen(sk);
	} else if (old_state == TCP_LISTEN && new_state != TCP_SYN_RECV) {
		on_unlisten(sk); /* a child leaves LISTEN too, towards SYN_RECV */
	}
	if (new_state != TCP_ESTABLISHED && new_state != TCP_CLOSE)
		return 0;
	c = conn_of(sk);
	if (!c)
		return 0;
	if (new_state == TCP_ESTABLISHED && c->role == ROLE_LISTENER)
		on_established(c, sk);
	else if (new_state == TCP_CLOSE && c->role == ROLE_CONN)
		on_closed(c, sk);
	return 0;
}

static __always_inline int on_accepted(struct sock *child)
{
	struct conn *c = child ? conn_of(child) : 0;

	if (c && (c->flags & CONN_ACCEPT_PENDING))
		accept_known(c, bpf_ktime_get_ns(), 1);
	return 0;
}

/* inet_csk_accept(sk, arg) since 6.10. */
SEC("fexit/inet_csk_accept")
int BPF_PROG(accepted, struct sock *sk, struct proto_accept_arg *arg, struct sock *child)
{
	return on_accepted(child);
}

/* inet_csk_accept(sk, flags, err, kern) before. */
SEC("fexit/inet_csk_accept")
int BPF_PROG(accepted_before_6_10, struct sock *sk, int flags, int *err, bool kern, struct sock *child)
{
	return on_accepted(child);
}

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long orig_ax;
} KERNEL_TYPE;
#define SYSCALL_OF(regs) ((u32)(regs)->orig_ax)
#define NR_ACCEPT 43
#define NR_ACCEPT4 288
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	s32 syscallno;
} KERNEL_TYPE;
#define SYSCALL_OF(regs) ((u32)(regs)->syscallno)
#define NR_ACCEPT 202
#define NR_ACCEPT4 242
#endif

static __always_inline void on_emfile(void)
{
	struct thread *th = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), 0, 0);
	struct port *p = th ? port_of(th->port) : 0;

	if (p)
		COUNT(p->accept_emfile);
}

/* Every system call's return: 0.8 µs a round trip, so attached only when asked for. */
SEC("tp_btf/sys_exit")
int BPF_PROG(accept_returned, struct pt_regs *regs, long ret)
{
	u32 nr = SYSCALL_OF(regs);
	struct file **fds, *f;
	struct socket *s;
	u64 key, *at;

	if (nr != NR_ACCEPT4 && nr != NR_ACCEPT)
		return 0;
	if (ret == -EMFILE)
		on_emfile();
	if (ret < 0)
		return 0;
	fds = BPF_CORE_READ(bpf_get_current_task_btf(), files, fdt, fd);
	if (bpf_probe_read_kernel(&f, sizeof(f), fds + ret))
		return 0;
	s = BPF_CORE_READ(f, private_data);
	key = (u64)BPF_CORE_READ(s, sk);
	at = bpf_map_lookup_elem(&accepting, &key);
	if (at && !*at)
		*at = bpf_ktime_get_ns();
	return 0;
}

/* The poorer rung: the first receive on the child, whatever it returned. */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(first_receive, struct sock *sk)
{
	struct conn *c = conn_of(sk);

	if (c && c->role == ROLE_CONN && (c->flags & CONN_ACCEPT_PENDING))
		accept_seen(c, sk, bpf_ktime_get_ns());
	return 0;
}

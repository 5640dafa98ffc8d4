//go:build ignore

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The queues of a watched socket: when bytes arrive, are read, are handed in and
 * leave. */
#include <bpf/bpf_endian.h>

#include "content.h"
#include "exchange.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Bytes up to the inbound position pos are readable. */
static __always_inline void bytes_arrived(struct conn *c, struct sock *sk, struct tcp_sock *tp, u32 pos, u64 t)
{
	u32 zero = 0;
	struct mark *m;

	if (c->flags & CONN_ACCEPT_PENDING && !sk->sk_socket)
		c->unaccepted = t;
	left_unseen(c, sk, tp, t);
	if (pos != c->arrived_pos) {
		if (c->read_pos == c->arrived_pos) {
			c->first_arrived = t;
			c->first_arrived_pos = pos;
		}
		c->last_arrived = t;
		c->arrived_pos = pos;
		step(c, t, STEP_ARRIVED, pos, 0);
	}
	m = bpf_map_lookup_elem(&marks, &zero);
	if (m) {
		m->t = t;
		m->cookie = c->cookie;
		m->tgid = c->tgid;
	}
}

static __always_inline int on_arrived(struct sock *sk)
{
	struct conn *c = conn_of(sk);
	struct tcp_sock *tp;
	u64 t;

	if (!c)
		return 0;
	if (c->role == ROLE_LISTENER) {
		struct port *p = port_of(c->port);
		u32 depth = sk->sk_ack_backlog;

		if (sk->__sk_common.skc_state != TCP_LISTEN || !p)
			return 0;
		COUNT(p->accept_arrivals);
		if (depth > p->accept_high_water)
			p->accept_high_water = depth;
		return 0;
	}
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	/* The packet's own time, less than a microsecond ago: reading the clock
	 * again would take half of this program's time. */
	t = tp->tcp_clock_cache;
	if (t < c->established)
		t = bpf_ktime_get_ns(); /* data with the SYN */
	bytes_arrived(c, sk, tp, data_arrived(tp), t);
	return 0;
}

/* tcp_data_ready() calls it once the bytes are in the receive queue. */
SEC("tp_btf/sk_data_ready")
int BPF_PROG(arrived, struct sock *sk)
{
	return on_arrived(sk);
}

/* The default sk_data_ready of a plain TCP socket; an MPTCP subflow has another. */
SEC("fentry/sock_def_readable")
int BPF_PROG(arrived_fentry, struct sock *sk)
{
	return on_arrived(sk);
}

/* tcp_rcv_established() has a packet in hand that it will queue if it is the next
 * one. A poorer rung: it knows no listener and not the packet that ended the
 * handshake. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(arrived_probe, struct sock *sk, struct sk_buff *skb)
{
	struct conn *c = conn_of(sk);
	struct tcp_skb_cb *cb;
	struct tcp_sock *tp;
	u32 ahead, fin;

	if (!c || c->role != ROLE_CONN)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	cb = (struct tcp_skb_cb *)skb->cb;
	ahead = BPF_CORE_READ(cb, end_seq) - tp->rcv_nxt;
	fin = BPF_CORE_READ(cb, tcp_flags) & TCPHDR_FIN;
	if (ahead && !before(tp->rcv_nxt, BPF_CORE_READ(cb, seq)))
		bytes_arrived(c, sk, tp, (u32)pos_arrived(tp) + ahead - fin, bpf_ktime_get_ns());
	return 0;
}

static __always_inline int on_read(struct sock *sk)
{
	struct conn *c = conn_of(sk);
	struct tcp_sock *tp;
	u32 pos;
	u64 t;

	if (!c || c->role != ROLE_CONN)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	pos = data_read(tp);
	if (pos == c->read_pos)
		return 0; /* MSG_PEEK takes nothing */
	t = bpf_ktime_get_ns();
	accept_seen(c, sk, t);
	c->tgid = bpf_get_current_pid_tgid() >> 32;
	request_read(c, pos, t);
	who_read(c);
	step(c, t, STEP_READ, pos, 0);
	return 0;
}

/* Called with the socket lock held by tcp_recvmsg_locked(), tcp_read_sock()
 * (splice) and tcp_zerocopy_receive() after they moved copied_seq; never for EAGAIN. */
SEC("tp_btf/tcp_rcv_space_adjust")
int BPF_PROG(read_done, struct sock *sk)
{
	return on_read(sk);
}

/* After the lock was released, and for every kind of socket; does not see splice. */
SEC("tp_btf/sock_recv_length")
int BPF_PROG(read_return, struct sock *sk, int ret)
{
	return ret > 0 ? on_read(sk) : 0;
}

static __always_inline int on_send(struct sock *sk, const struct msghdr *msg)
{
	struct conn *c = conn_of(sk);
	struct config *cfg;
	struct tcp_sock *tp;
	u64 t, len = msg->msg_iter.count;
	u8 class = CLASS_CONTENT;
	u32 end;

	if (!c || c->role != ROLE_CONN)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	cfg = config();
	if (!tp || !cfg)
		return 0;
	end = tp->write_seq + (u32)len;
	if (end == c->send_end || !len)
		return 0; /* the next turn of the same write */
	t = bpf_ktime_get_ns();
	left_unseen(c, sk, tp, t);
	accept_seen(c, sk, t);
	if (data_read(tp) != c->read_pos) {
		request_read(c, data_read(tp), t);
		c->flags |= CONN_UNREAD_SPLIT;
		c->ran = 0;
		c->handed = 0;
		step(c, t, STEP_READ, c->read_pos, 1);
	}
	if (c->phase == PHASE_REQUEST)
		c->looked = 0;
	if (!(cfg->flags & CONFIG_CONTENT))
		class = class_by_length(len, c->phase);
	else if (!(c->flags & CONN_OPAQUE) &&
		 (len <= SMALL_WRITE || c->phase == PHASE_REQUEST || (!(c->flags & CONN_CONTENT) && c->looked < LOOKS)))
		class = class_of(c, msg, len);
	write_begins(c, tp, cfg, end, t, class);
	return 0;
}

/* In each turn of tcp_sendmsg_locked()'s loop, the socket lock held. */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(send_begins, struct sock *sk, const struct msghdr *msg)
{
	return on_send(sk, msg);
}

SEC("fentry/tcp_sendmsg")
int BPF_PROG(send_begins_fentry, struct sock *sk, const struct msghdr *msg)
{
	return on_send(sk, msg);
}

static __always_inline int on_sent(struct sock *sk, int ret)
{
	struct conn *c = conn_of(sk);
	struct config *cfg;
	struct tcp_sock *tp;
	struct stirred *s;
	struct port *p;
	u64 t, start;
	u32 next;

	if (!c || c->role != ROLE_CONN)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	cfg = config();
	if (!tp || !cfg)
		return 0;
	/* What was sent left when the socket last read the clock: since the write
	 * began, unless nothing was sent. */
	if (cfg->flags & CONFIG_SEND_START) {
		t = tp->tcp_clock_cache;
		start = c->writes[(c->write_tail - 1) & (WRITES - 1)].start;
		if (t < start)
			t = start;
		write_cut(c, tp->write_seq, ret, t);
	} else {
		t = bpf_ktime_get_ns();
		if (ret > 0)
			write_begins(c, tp, cfg, tp->write_seq, t, class_by_length(ret, c->phase));
	}
	next = tp->snd_nxt;
	step(c, t, STEP_SENT, next + c->left_base, 0);
	writes_left(c, sk, next, t);
	if (c->write_head == c->write_tail)
		return 0;
	s = stirred();
	if (s)
		COUNT(s->backlogged);
	p = port_of(c->port);
	if (p) {
		COUNT(p->blocked_writes);
		if (!tp->snd_wnd)
			COUNT(p->zero_windows);
		else if (tp->packets_out && !(BPF_CORE_READ_BITFIELD(tp, nonagle) & TCP_NAGLE_OFF))
			COUNT(p->nagle_writes);
	}
	return 0;
}

/* sock_sendmsg() returns: write, send, sendmsg, sendfile, io_uring. */
SEC("tp_btf/sock_send_length")
int BPF_PROG(sent, struct sock *sk, int ret)
{
	return on_sent(sk, ret);
}

SEC("fexit/tcp_sendmsg")
int BPF_PROG(sent_fexit, struct sock *sk, struct msghdr *msg, u64 size, int ret)
{
	return on_sent(sk, ret);
}

/* Finds the sequence number after the packet's last byte of data. */
static __always_inline int seq_after(struct sk_buff *skb, u32 *end)
{
	unsigned char *th = skb->head + skb->transport_header;
	u32 before_tcp = th - skb->data;
	u8 h[16] = {}; /* ports, sequence, acknowledgement, offset */
	u32 seq;

	if (bpf_probe_read_kernel(h, sizeof(h), th))
		return -1;
	__builtin_memcpy(&seq, h + 4, 4);
	*end = bpf_ntohl(seq) + skb->len - before_tcp - (h[12] >> 4) * 4;
	return 0;
}

/* __dev_queue_xmit() has a packet of the socket in hand: exact, where the next
 * acknowledgement may be 40 ms away (a paced congestion control, a window that
 * opens). One run a packet of the node, so attached as the one below. */
SEC("tp_btf/net_dev_queue")
int BPF_PROG(queued, struct sk_buff *skb)
{
	struct sock *sk = skb->sk;
	struct conn *c = sk ? conn_of(sk) : 0;
	u32 end;
	u64 t;

	if (!c || c->role != ROLE_CONN || c->write_head == c->write_tail)
		return 0;
	if (seq_after(skb, &end) || before(end, c->writes[c->write_head & (WRITES - 1)].end))
		return 0;
	t = bpf_ktime_get_ns();
	step(c, t, STEP_LEFT, end + c->left_base, 0);
	writes_left(c, sk, end, t);
	return 0;
}

/* tcp_rcv_established() begins with a packet: what the acknowledgement before it
 * set free has left by now. Attached only while some send left data behind. */
SEC("tp_btf/tcp_probe")
int BPF_PROG(acknowledged, struct sock *sk)
{
	struct conn *c = conn_of(sk);
	struct tcp_sock *tp;
	u64 t;

	if (!c || c->role != ROLE_CONN || c->write_head == c->write_tail)
		return 0;
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp)
		return 0;
	t = bpf_ktime_get_ns();
	step(c, t, STEP_LEFT, tp->snd_nxt + c->left_base, 0);
	writes_left(c, sk, tp->snd_nxt, t);
	return 0;
}

/* One line of the iterator's output. */
struct sock_line {
	u64 cookie;
	u64 jiffies;
	u64 ktime;
	u64 arrived;
	u64 read;
	u64 written;
	u64 left;
	u32 state;
	u8 marked; /* by this run */
	u8 reserved[3];
};

const struct sock_line *unused_sock_line __attribute__((unused));

static __always_inline void mark_new(struct conn *c, struct tcp_sock *tp, u32 port)
{
	struct port *p = port_of(port);

	c->cookie = bpf_get_socket_cookie(tp);
	c->port = port;
	c->phase = PHASE_UNKNOWN;
	c->arrived_pos = (u32)pos_arrived(tp);
	c->read_pos = (u32)pos_read(tp);
	c->rwnd_jiffies = tp->chrono_stat[1];
	c->sndbuf_jiffies = tp->chrono_stat[2];
	c->role = ROLE_CONN;
	if (p)
		COUNT(p->connections);
}

/* One line for a socket of a watched port. */
static __always_inline void tell(struct sock_line *l, struct tcp_sock *tp)
{
	l->state = tp->inet_conn.icsk_inet.sk.__sk_common.skc_state;
	l->cookie = bpf_get_socket_cookie(tp);
	l->jiffies = bpf_jiffies64();
	l->ktime = bpf_ktime_get_ns();
	l->arrived = pos_arrived(tp);
	l->read = pos_read(tp);
	l->written = pos_written(tp);
	l->left = pos_left(tp);
}

static __always_inline void count_listener(struct open_sockets *open, struct conn *c, struct tcp_sock *tp)
{
	struct sock *sk = &tp->inet_conn.icsk_inet.sk;

	COUNT(open->listeners);
	__sync_fetch_and_add(&open->accept_depth, sk->sk_ack_backlog);
	__sync_fetch_and_add(&open->accept_limit, sk->sk_max_ack_backlog);
	__sync_fetch_and_add(&open->accept_overflows, refused(c, sk));
}

static __always_inline void count_conn(struct open_sockets *open, struct conn *c, struct tcp_sock *tp)
{
	COUNT(open->established);
	__sync_fetch_and_add(&open->rwnd_jiffies, tp->chrono_stat[1] - c->rwnd_jiffies);
	__sync_fetch_and_add(&open->sndbuf_jiffies, tp->chrono_stat[2] - c->sndbuf_jiffies);
}

/* Walks the marked sockets of all network namespaces and adds up what they are at. A
 * line for each would stop the walk in the midst of a bucket whenever the reader's
 * buffer is full; it goes on by counting, and what came or went meanwhile makes it
 * find a socket twice or not at all. In one piece it may do so too, if rarely: the
 * memory of a socket that closes is used again at once. Hence the number of the walk;
 * what is missed is found by the next. The only line, at the end, has the clocks. */
SEC("iter/bpf_sk_storage_map")
int survey(struct bpf_iter__bpf_sk_storage_map *ctx)
{
	struct open_sockets *open;
	struct sock *sk = ctx->sk;
	struct sock_line l = {};
	struct conn *c = ctx->value;
	struct tcp_sock *tp;
	u32 port, *watched;

	if (!sk) {
		l.jiffies = bpf_jiffies64();
		l.ktime = bpf_ktime_get_ns();
		bpf_seq_write(ctx->meta->seq, &l, sizeof(l));
		return 0;
	}
	tp = bpf_skc_to_tcp_sock(sk);
	if (!tp || !c)
		return 0;
	port = c->port;
	open = bpf_map_lookup_elem(&open_map, &port);
	if (!open || c->walk == (u32)open->walk)
		return 0;
	c->walk = open->walk;
	if (c->role == ROLE_CONN && sk->__sk_common.skc_state == TCP_ESTABLISHED) {
		count_conn(open, c, tp);
	} else if (c->role == ROLE_LISTENER && sk->__sk_common.skc_state == TCP_LISTEN && c->listener == (u64)sk) {
		watched = watched_as(sk);
		if (watched && *watched == port) /* the index may be another port's by now */
			count_listener(open, c, tp);
	}
	return 0;
}

/* Marks the sockets of watched ports that are older than the agent, and tells
 * user space what each is at. */
SEC("iter/tcp")
int mark(struct bpf_iter__tcp *ctx)
{
	struct sock_common *skc = ctx->sk_common;
	struct sock_line l = {};
	struct watch_key key = {};
	struct tcp_sock *tp;
	struct conn *c;
	u32 *port, state;

	if (!skc)
		return 0;
	state = skc->skc_state;
	if (state != TCP_LISTEN && state != TCP_ESTABLISHED)
		return 0;
	key.netns = skc->skc_net.net->ns.inum;
	key.port = skc->skc_num;
	port = bpf_map_lookup_elem(&watch_map, &key);
	if (!port && state == TCP_ESTABLISHED) {
		key.port = bpf_ntohs(skc->skc_dport);
		key.remote = 1;
		port = bpf_map_lookup_elem(&watch_map, &key);
	}
	tp = port ? bpf_skc_to_tcp_sock(skc) : 0;
	if (!tp)
		return 0;
	c = bpf_sk_storage_get(&conns, tp, 0, BPF_SK_STORAGE_GET_F_CREATE);
	if (!c) {
		lost(LOST_CONN_STORAGE);
		return 0;
	}
	l.marked = !c->role;
	if (state == TCP_LISTEN) {
		if (l.marked || c->port != *port)
			mark_listener(c, &tp->inet_conn.icsk_inet.sk, *port);
	} else if (l.marked) {
		mark_new(c, tp, *port);
	}
	c->port = *port;
	tell(&l, tp);
	bpf_seq_write(ctx->meta->seq, &l, sizeof(l));
	return 0;
}

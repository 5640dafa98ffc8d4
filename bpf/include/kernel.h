/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The few kernel types that the programs read, as far as they read them. CO-RE
 * finds each field by its name in the running kernel's BTF. */
#pragma once

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef _Bool bool;

/* These are not whole: their padding means nothing. */
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wpadded"

#define KERNEL_TYPE __attribute__((preserve_access_index))

enum tcp_state { TCP_ESTABLISHED = 1, TCP_SYN_RECV = 3, TCP_CLOSE = 7, TCP_LISTEN = 10 };

#define RCV_SHUTDOWN 1
#define TCP_NAGLE_OFF 1
#define TCPHDR_FIN 1
#define EMFILE 24
#define AF_INET 2
#define AF_INET6 10

struct ns_common {
	u32 inum;
} KERNEL_TYPE;

struct net {
	struct ns_common ns;
} KERNEL_TYPE;

typedef struct {
	struct net *net;
} KERNEL_TYPE possible_net_t;

struct in6_addr {
	union {
		u8 u6_addr8[16];
	} in6_u;
} KERNEL_TYPE;

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	u16 skc_num;
	u16 skc_family;
	volatile u8 skc_state;
	possible_net_t skc_net;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
} KERNEL_TYPE;

struct socket;

typedef struct {
	int counter;
} KERNEL_TYPE atomic_t;

struct sock {
	struct sock_common __sk_common;
	atomic_t sk_drops;
	u32 sk_ack_backlog;
	u32 sk_max_ack_backlog;
	u8 sk_shutdown;
	struct socket *sk_socket;
} KERNEL_TYPE;

struct inet_sock {
	struct sock sk;
} KERNEL_TYPE;

struct inet_connection_sock {
	struct inet_sock icsk_inet;
} KERNEL_TYPE;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 chrono_stat[3]; /* jiffies: busy, receive window, send buffer */
	u32 copied_seq;
	u32 rcv_nxt;
	u32 snd_nxt;
	u32 snd_una;
	u32 write_seq;
	u32 snd_wnd;
	u32 total_retrans;
	u32 packets_out;
	u8 nonagle : 4;
	u64 bytes_received;
	u64 bytes_acked;
	u64 tcp_wstamp_ns;   /* CLOCK_MONOTONIC: when the newest packet may leave, and a little more under pacing */
	u64 tcp_clock_cache; /* CLOCK_MONOTONIC: when the newest packet was received or sent */
} KERNEL_TYPE;

struct iovec {
	void *iov_base;
	u64 iov_len;
} KERNEL_TYPE;

enum iter_type { ITER_UBUF, ITER_IOVEC };

struct iov_iter {
	u8 iter_type;
	u64 iov_offset;
	const struct iovec *__iov;
	void *ubuf;
	u64 count;
	unsigned long nr_segs;
} KERNEL_TYPE;

/* Before 6.4 the vector was called iov. */
struct iov_iter___old {
	const struct iovec *iov;
} KERNEL_TYPE;

struct msghdr {
	struct iov_iter msg_iter;
} KERNEL_TYPE;

struct file {
	void *private_data;
} KERNEL_TYPE;

struct fdtable {
	u32 max_fds;
	struct file **fd;
} KERNEL_TYPE;

struct files_struct {
	struct fdtable *fdt;
} KERNEL_TYPE;

struct socket {
	struct sock *sk;
} KERNEL_TYPE;

struct task_struct {
	int pid;
	int tgid;
	struct files_struct *files;
} KERNEL_TYPE;

struct sk_buff {
	struct sock *sk;
	char cb[48];
	u32 len;
	u16 transport_header;
	unsigned char *head;
	unsigned char *data;
} KERNEL_TYPE;

struct tcp_skb_cb {
	u32 seq;
	u32 end_seq;
	u8 tcp_flags; /* the low byte, where it is wider */
} KERNEL_TYPE;

struct proto_accept_arg;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
} KERNEL_TYPE;

struct bpf_iter__tcp {
	struct bpf_iter_meta *meta;
	struct sock_common *sk_common;
} KERNEL_TYPE;

struct bpf_iter__bpf_sk_storage_map {
	struct bpf_iter_meta *meta;
	struct sock *sk;
	void *value;
} KERNEL_TYPE;

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} KERNEL_TYPE;

#pragma clang diagnostic pop

/* What a subprogram returns when it has nothing to say: a zero that the compiler
 * cannot see through. It would else drop the value and leave a pointer in r0,
 * which the verifier refuses. */
static __always_inline int done(void)
{
	int zero = 0;

	asm volatile("" : "+r"(zero));
	return zero;
}

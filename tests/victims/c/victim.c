// SPDX-License-Identifier: Apache-2.0

/* An HTTP/1.1 server that streams and delays what it is told to, and that
 * measures each delay with its own clock. Two models:
 *
 *   thread   each connection has one thread that polls, reads and answers; the
 *            threads take turns at polling and accepting (one at a time)
 *   handoff  one thread polls; it hands a ready socket to a second thread, which
 *            reads and answers
 *
 * It prints {"port":N,"pid":N} and then takes commands on standard input, one a
 * line, each answered by "ok": "accept NS", "reader NS", "handoff NS" (the
 * second thread is woken and keeps busy that long before it takes the socket
 * up), "handoff-busy NS" (it is busy before the hand-over and NS longer). It ends
 * with its standard input. */

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "victim.h"

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

_Atomic int64_t accept_delay, reader_delay;
const char *answer_text = "token";

static _Atomic int64_t handoff_delay;
static atomic_int busy_before; /* the second thread spins while it waits */
static int listener, sndbuf;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* Waits for a connection, lets it wait as long as told, accepts it. */
static struct conn *next_connection(int may_block)
{
	struct pollfd p = {.fd = listener, .events = POLLIN};
	while (poll(&p, 1, may_block ? -1 : 0) < 0 && errno == EINTR)
		;
	if (!(p.revents & POLLIN))
		return NULL;
	int64_t delay = atomic_load(&accept_delay), waited = 0;
	if (delay > 0)
		waited = measured_sleep(delay);
	struct sockaddr_storage from;
	socklen_t n = sizeof from;
	int one = 1, fd = accept4(listener, (struct sockaddr *)&from, &n, SOCK_CLOEXEC);
	if (fd < 0)
		return NULL;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	struct conn *c = calloc(1, sizeof *c);
	if (!c)
		abort();
	c->fd = fd;
	c->accepted = now_ns();
	c->accept_wait = waited;
	c->port = ntohs(from.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&from)->sin6_port
						   : ((struct sockaddr_in *)&from)->sin_port);
	return c;
}

static void drop(struct conn *c)
{
	close(c->fd);
	free(c->buf);
	free(c);
}

/* The thread model. */

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void *take_turns(void *unused)
{
	for (;;) {
		pthread_mutex_lock(&turn);
		struct conn *c = next_connection(1);
		pthread_mutex_unlock(&turn);
		if (!c)
			continue;
		while (serve_request(c))
			;
		drop(c);
	}
	return unused;
}

/* The handoff model: a ring of sockets that are ready. */

#define RING 1024
static struct {
	pthread_mutex_t lock;
	pthread_cond_t some;
	struct conn *conn[RING];
	_Atomic unsigned head, tail;
} ready = {.lock = PTHREAD_MUTEX_INITIALIZER, .some = PTHREAD_COND_INITIALIZER};
static int poller;

static struct conn *take_up(void)
{
	while (atomic_load(&busy_before) && atomic_load(&ready.head) == atomic_load(&ready.tail))
		;
	pthread_mutex_lock(&ready.lock);
	while (ready.head == ready.tail && !atomic_load(&busy_before))
		pthread_cond_wait(&ready.some, &ready.lock);
	struct conn *c = NULL;
	if (ready.head != ready.tail)
		c = ready.conn[ready.head++ % RING];
	pthread_mutex_unlock(&ready.lock);
	if (!c)
		return NULL;
	int64_t until = c->handed_over + atomic_load(&handoff_delay);
	int64_t now;
	while ((now = now_ns()) < until)
		;
	c->handoff = now - c->handed_over;
	return c;
}

static void *second_thread(void *unused)
{
	for (;;) {
		struct conn *c = take_up();
		if (!c)
			continue;
		int alive = serve_request(c);
		while (alive && c->len > 0) /* a pipelined request */
			alive = serve_request(c);
		struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT, .data.ptr = c};
		if (!alive || epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &e) < 0)
			drop(c);
	}
	return unused;
}

static void *hand_over(void *unused)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
	if ((poller = epoll_create1(EPOLL_CLOEXEC)) < 0 || epoll_ctl(poller, EPOLL_CTL_ADD, listener, &e) < 0)
		die("polling the listener");
	for (;;) {
		if (epoll_wait(poller, &e, 1, -1) < 1)
			continue;
		struct conn *c = e.data.ptr;
		if (!c) {
			if (!(c = next_connection(0)))
				continue;
			e = (struct epoll_event){.events = EPOLLIN | EPOLLONESHOT, .data.ptr = c};
			if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &e) < 0)
				drop(c);
			continue;
		}
		pthread_mutex_lock(&ready.lock);
		c->handed_over = now_ns();
		ready.conn[ready.tail++ % RING] = c;
		pthread_cond_signal(&ready.some);
		pthread_mutex_unlock(&ready.lock);
	}
	return unused;
}

static void listen_on(const char *host, const char *port, int mptcp, int backlog)
{
	struct addrinfo hint = {.ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM}, *a;
	if (getaddrinfo(host, port, &hint, &a)) {
		fprintf(stderr, "no such address: %s\n", host);
		exit(2);
	}
	int one = 1, zero = 0;
	listener = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, mptcp ? IPPROTO_MPTCP : 0);
	if (listener < 0)
		die("making the listening socket");
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (a->ai_family == AF_INET6)
		setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
	if (setsockopt(listener, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5) < 0)
		perror("choosing cubic");
	if (sndbuf)
		setsockopt(listener, SOL_SOCKET, SO_SNDBUF, &sndbuf, sizeof sndbuf);
	if (bind(listener, a->ai_addr, a->ai_addrlen) < 0 || listen(listener, backlog) < 0)
		die("listening");
	freeaddrinfo(a);
}

static unsigned bound_port(void)
{
	struct sockaddr_in6 b; /* the port lies at the same place for both families */
	socklen_t n = sizeof b;
	if (getsockname(listener, (struct sockaddr *)&b, &n) < 0)
		die("asking for the port");
	return ntohs(b.sin6_port);
}

static void obey(void)
{
	char line[128], word[32];
	long long ns;
	while (fgets(line, sizeof line, stdin)) {
		const char *reply = "ok";
		if (sscanf(line, "%31s %lld", word, &ns) != 2) {
			reply = "not understood";
		} else if (!strcmp(word, "accept")) {
			atomic_store(&accept_delay, ns);
		} else if (!strcmp(word, "reader")) {
			atomic_store(&reader_delay, ns);
		} else if (!strcmp(word, "handoff") || !strcmp(word, "handoff-busy")) {
			atomic_store(&handoff_delay, ns);
			atomic_store(&busy_before, word[7] == '-' && ns > 0);
			pthread_mutex_lock(&ready.lock);
			pthread_cond_signal(&ready.some);
			pthread_mutex_unlock(&ready.lock);
		} else {
			reply = "not understood";
		}
		printf("%s\n", reply);
		fflush(stdout);
	}
}

static void start(void *(*f)(void *))
{
	pthread_t t;
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 256 << 10);
	if ((errno = pthread_create(&t, &a, f, NULL)))
		die("starting a thread");
}

int main(int argc, char **argv)
{
	static const struct option flags[] = {
		/* clang-format off */
		{"host", 1, 0, 'h'},	{"port", 1, 0, 'p'},	{"cpu", 1, 0, 'c'},
		{"log", 1, 0, 'l'},	{"mptcp", 0, 0, 'm'},	{"sndbuf", 1, 0, 's'},
		{"answer", 1, 0, 'a'},	{"handoff", 0, 0, 'o'}, {"threads", 1, 0, 't'},
		{"backlog", 1, 0, 'b'}, {0},
		/* clang-format on */
	};
	const char *host = "127.0.0.1", *port = "0";
	int f, mptcp = 0, handoff = 0, threads = 128, backlog = 4096;
	while ((f = getopt_long(argc, argv, "", flags, NULL)) != -1) {
		cpu_set_t set;
		switch (f) {
		case 'h': host = optarg; break;
		case 'p': port = optarg; break;
		case 'm': mptcp = 1; break;
		case 's': sndbuf = atoi(optarg); break;
		case 'a': answer_text = optarg; break;
		case 'o': handoff = 1; break;
		case 't': threads = atoi(optarg); break;
		case 'b': backlog = atoi(optarg); break;
		case 'l':
			if (log_open(optarg))
				die("opening the log");
			break;
		case 'c':
			CPU_ZERO(&set);
			CPU_SET(atoi(optarg), &set);
			if (sched_setaffinity(0, sizeof set, &set))
				die("pinning");
			break;
		default: return 2;
		}
	}
	signal(SIGPIPE, SIG_IGN);
	listen_on(host, port, mptcp, backlog);
	if (handoff) {
		start(second_thread);
		start(hand_over);
	} else {
		for (int i = 0; i < threads; i++)
			start(take_turns);
	}
	printf("{\"port\":%u,\"pid\":%d}\n", bound_port(), getpid());
	fflush(stdout);
	obey();
	return 0;
}

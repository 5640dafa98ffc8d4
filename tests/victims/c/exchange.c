// SPDX-License-Identifier: Apache-2.0

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "victim.h"

#define MAX_REQUEST (8 << 20)

/* Waits until data is readable, sleeps if told to, reads. The stages' times are
 * those of the last read: TTFT starts when the last byte of a request arrives.
 * After a hand-over the polling thread has waited already. */
static ssize_t read_more(struct conn *c)
{
	if (c->cap - c->len < 16384) {
		if (c->cap > MAX_REQUEST)
			return -1;
		c->cap = c->cap ? 2 * c->cap : 65536;
		c->buf = realloc(c->buf, c->cap);
		if (!c->buf)
			abort();
	}
	struct pollfd p = {.fd = c->fd, .events = POLLIN | POLLRDHUP};
	if (c->handed_over == 0 || c->reads > 0) {
		int64_t before = run_delay();
		while (poll(&p, 1, -1) < 0 && errno == EINTR)
			;
		c->wake_to_run = run_delay() - before;
	} else {
		poll(&p, 1, 0);
	}
	int64_t delay = atomic_load(&reader_delay);
	c->reader = 0;
	if (delay > 0 && !(p.revents & POLLRDHUP)) /* a bare FIN is no request */
		c->reader = measured_sleep(delay);
	ssize_t n = recv(c->fd, c->buf + c->len, c->cap - c->len, 0);
	if (n > 0) {
		c->len += n;
		c->reads++;
	}
	return n;
}

static int write_all(struct conn *c, const char *what, const char *b, size_t n)
{
	size_t done = 0;
	int64_t before = now_ns();
	while (done < n) {
		ssize_t k = send(c->fd, b + done, n - done, MSG_NOSIGNAL);
		if (k < 0 && errno == EINTR)
			continue;
		if (k <= 0)
			return -1;
		done += k;
	}
	int64_t after = now_ns();
	c->send_queue += after - before;
	if (c->nwrites < MAX_WRITES)
		c->writes[c->nwrites++] = (struct stamp){before, after, n, what};
	return 0;
}

/* The value of a header in the NUL-terminated head, or NULL; *n gets its length. */
static const char *header(const char *head, const char *name, size_t *n)
{
	size_t k = strlen(name);
	for (const char *line = strstr(head, "\r\n"); line; line = strstr(line, "\r\n")) {
		line += 2;
		if (strncasecmp(line, name, k) || line[k] != ':')
			continue;
		const char *v = line + k + 1;
		while (*v == ' ')
			v++;
		*n = strcspn(v, "\r");
		return v;
	}
	return NULL;
}

static const char response_head[] = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
				    "Cache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n";
static const char role_event[] =
	"data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";

/* One content event of about size bytes as one HTTP chunk, appended to b. */
static size_t content_chunk(char *b, long size)
{
	static const char open[] = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"";
	static const char close[] = "\"}}]}\n\n";
	size_t text = strlen(answer_text), fixed = sizeof open - 1 + text + sizeof close - 1;
	size_t pad = size > (long)fixed ? size - fixed : 0;
	char *at = b + sprintf(b, "%zx\r\n%s%s", fixed + pad, open, answer_text);
	memset(at, 'x', pad);
	return at + pad + sprintf(at + pad, "%s\r\n", close) - b;
}

static int respond(struct conn *c, const struct plan *p)
{
	long biggest = 0;
	for (int i = 0; i < p->nsizes; i++)
		if (p->sizes[i] > biggest)
			biggest = p->sizes[i];
	char *b = malloc(sizeof response_head + strlen(answer_text) + biggest + 256);
	if (!b)
		abort();
	int bad = 0;
	size_t held = 0;
	c->engine = 0;
	if (p->early)
		bad = write_all(c, "headers", response_head, sizeof response_head - 1);
	if (p->engine)
		c->engine = measured_sleep(p->engine);
	if (!p->early && p->joined)
		memcpy(b, response_head, held = sizeof response_head - 1);
	else if (!p->early)
		bad = write_all(c, "headers", response_head, sizeof response_head - 1);
	if (p->role && !bad) {
		char role[sizeof role_event + 16];
		int n = sprintf(role, "%zx\r\n%s\r\n", sizeof role_event - 1, role_event);
		bad = write_all(c, "role", role, n);
	}
	for (long i = 0; i < p->chunks && !bad; i++) {
		int64_t gap = i == 0 ? 0 : i <= p->ngaps ? p->gaps[i - 1] : p->gap;
		if (gap)
			measured_sleep(gap);
		size_t n = content_chunk(b + held, i < p->nsizes ? p->sizes[i] : 0);
		bad = write_all(c, "content", b, held + n);
		held = 0;
	}
	free(b);
	static const char end[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
	return bad ? bad : write_all(c, "done", end, sizeof end - 1);
}

int serve_request(struct conn *c)
{
	char *end = NULL;
	size_t n, skipped, want = 0;
	c->reads = c->nwrites = 0;
	c->wake_to_run = c->reader = c->engine = c->send_queue = 0;
	while (!(end = c->len ? memmem(c->buf, c->len, "\r\n\r\n", 4) : NULL))
		if (read_more(c) <= 0)
			return 0;
	end[2] = 0;
	skipped = end + 4 - c->buf;
	const char *v = header(c->buf, "Content-Length", &n);
	if (v)
		want = strtoul(v, NULL, 10);
	if (want > MAX_REQUEST)
		return 0;
	struct plan p;
	v = header(c->buf, "X-Case", &n);
	parse_plan(&p, v ? v : "", v ? n : 0);
	v = header(c->buf, "Connection", &n);
	int keep = !(v && n == 5 && !strncasecmp(v, "close", 5));
	v = header(c->buf, "Expect", &n);
	if (v && n == 12 && !strncasecmp(v, "100-continue", 12) &&
	    write_all(c, "interim", "HTTP/1.1 100 Continue\r\n\r\n", 25))
		return 0;
	while (c->len < skipped + want)
		if (read_more(c) <= 0)
			return 0;
	c->read_at = now_ns();
	c->len -= skipped + want;
	memmove(c->buf, c->buf + skipped + want, c->len);
	c->ordinal++;
	c->send_queue = 0;
	int64_t before = run_delay();
	int bad = respond(c, &p);
	log_request(c, &p, run_delay() - before);
	c->accept_wait = 0;
	return keep && !bad;
}

static int log_fd = -1;

int log_open(const char *path)
{
	log_fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
	return log_fd < 0 ? -1 : 0;
}

void log_request(const struct conn *c, const struct plan *p, int64_t served_delay)
{
	static __thread char line[16384];
	if (log_fd < 0)
		return;
	int n = sprintf(line,
			"{\"remote_port\":%u,\"ordinal\":%u,\"case\":\"%s\",\"reads\":%u,"
			"\"accepted\":%lld,\"read_at\":%lld,\"served_run_delay\":%lld,"
			"\"injected\":{",
			c->port, c->ordinal, p->label, c->reads, (long long)c->accepted, (long long)c->read_at,
			(long long)served_delay);
	const struct {
		const char *name;
		int64_t ns;
	} rest[] = {
		{"wake_to_run", c->handed_over ? 0 : c->wake_to_run},
		{"accept_wait", c->accept_wait},
		{"reader", c->reader},
		{"runtime_handoff", c->handed_over ? c->handoff : 0},
		{"engine", c->engine},
		{"send_queue", p->nsizes ? c->send_queue : 0},
	};
	const char *comma = "";
	for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
		if (rest[i].ns <= 0)
			continue;
		n += sprintf(line + n, "%s\"%s\":%lld", comma, rest[i].name, (long long)rest[i].ns);
		comma = ",";
	}
	n += sprintf(line + n, "},\"writes\":[");
	for (unsigned i = 0; i < c->nwrites; i++)
		n += sprintf(line + n, "%s{\"before\":%lld,\"after\":%lld,\"bytes\":%zu,\"what\":\"%s\"}", i ? "," : "",
			     (long long)c->writes[i].before, (long long)c->writes[i].after, c->writes[i].bytes,
			     c->writes[i].what);
	n += sprintf(line + n, "]}\n");
	if (write(log_fd, line, n) != n)
		perror("writing the log");
}

/* SPDX-License-Identifier: Apache-2.0 */

/* The C server under test. What its parts share: the clock, the plan of a
 * response, a connection with the stamps of its current request. All times are
 * nanoseconds of CLOCK_MONOTONIC. */
#ifndef VICTIM_H
#define VICTIM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define MAX_GAPS 64
#define MAX_SIZES 16
#define MAX_WRITES 64 /* how many writes of a response the log keeps */

/* What the X-Case header of a request asks for. */
struct plan {
	char label[256];
	int64_t engine;
	int64_t gaps[MAX_GAPS]; /* before chunk 1, 2, … */
	int ngaps;
	int64_t gap; /* before each chunk that gaps does not name */
	long chunks;
	long sizes[MAX_SIZES]; /* bytes of chunk 0, 1, … */
	int nsizes;
	int early;  /* headers leave before the engine's time */
	int joined; /* headers travel in the write of the first chunk */
	int role;   /* a chunk without content goes first */
};

struct stamp {
	int64_t before, after;
	size_t bytes;
	const char *what;
};

struct conn {
	int fd;
	unsigned port; /* the client's */
	unsigned ordinal;
	int64_t accept_wait;
	int64_t accepted;
	char *buf; /* received and not yet used */
	size_t len, cap;

	/* of the current request */
	int64_t wake_to_run, reader, handoff, engine, send_queue, read_at;
	int64_t handed_over; /* by the polling thread; 0 in the other model */
	unsigned reads;
	struct stamp writes[MAX_WRITES];
	unsigned nwrites;
};

/* Delays that no header can carry, set on standard input; they stay until changed. */
extern _Atomic int64_t accept_delay, reader_delay;

static inline int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* Sleeps d ns and returns how long it really took. */
int64_t measured_sleep(int64_t d);

/* How long the calling thread has waited for a CPU so far (schedstat, field 2). */
int64_t run_delay(void);

void parse_plan(struct plan *p, const char *s, size_t n);

/* serve_request reads one request and answers it. It returns 1 if the
 * connection can take another one, 0 if it is over. */
int serve_request(struct conn *c);

void log_request(const struct conn *c, const struct plan *p, int64_t served_delay);
int log_open(const char *path);
extern const char *answer_text;

#endif

// SPDX-License-Identifier: Apache-2.0

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "victim.h"

int64_t measured_sleep(int64_t d)
{
	int64_t start = now_ns();
	struct timespec t = {d / 1000000000, d % 1000000000};
	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t) == EINTR)
		;
	return now_ns() - start;
}

int64_t run_delay(void)
{
	static __thread int fd = -1;
	char text[96];
	if (fd < 0)
		fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : pread(fd, text, sizeof text - 1, 0);
	if (n <= 0)
		return 0;
	text[n] = 0;
	char *second = strchr(text, ' ');
	return second ? strtoll(second, NULL, 10) : 0;
}

/* "5ms", "2.5us", "1s", "700ns" or plain nanoseconds. */
static int64_t duration(const char *s, char **end)
{
	double v = strtod(s, end);
	if (!strncmp(*end, "ns", 2))
		*end += 2;
	else if (!strncmp(*end, "us", 2))
		v *= 1e3, *end += 2;
	else if (!strncmp(*end, "ms", 2))
		v *= 1e6, *end += 2;
	else if (**end == 's')
		v *= 1e9, *end += 1;
	return v > 0 ? (int64_t)v : 0;
}

static int value_of(char *word, const char *key, char **value)
{
	size_t n = strlen(key);
	if (strncmp(word, key, n) || word[n] != '=')
		return 0;
	*value = word + n + 1;
	return 1;
}

static void parse_word(struct plan *p, char *word)
{
	char *v, *end;
	if (value_of(word, "engine", &v)) {
		p->engine = duration(v, &end);
	} else if (value_of(word, "gap", &v)) {
		p->gap = duration(v, &end);
	} else if (value_of(word, "gaps", &v)) {
		for (end = v - 1; p->ngaps < MAX_GAPS && (end == v - 1 || *end == ',');)
			p->gaps[p->ngaps++] = duration(end + 1, &end);
	} else if (value_of(word, "sizes", &v)) {
		for (end = v - 1; p->nsizes < MAX_SIZES && (end == v - 1 || *end == ',');)
			p->sizes[p->nsizes++] = strtol(end + 1, &end, 10);
	} else if (value_of(word, "chunks", &v)) {
		p->chunks = strtol(v, NULL, 10);
	} else if (!strcmp(word, "early")) {
		p->early = 1;
	} else if (!strcmp(word, "joined")) {
		p->joined = 1;
	} else if (!strcmp(word, "role")) {
		p->role = 1;
	} /* any other word is a label of the driver's */
}

void parse_plan(struct plan *p, const char *s, size_t n)
{
	memset(p, 0, sizeof *p);
	if (n >= sizeof p->label)
		n = sizeof p->label - 1;
	for (size_t i = 0; i < n; i++)
		p->label[i] = s[i] < ' ' || s[i] == '"' || s[i] == '\\' ? '?' : s[i];
	char words[sizeof p->label], *rest = words, *word;
	memcpy(words, p->label, sizeof words);
	while ((word = strsep(&rest, "; ")))
		parse_word(p, word);
	if (p->chunks < 1) {
		p->chunks = p->ngaps + 1;
		if (p->nsizes > p->chunks)
			p->chunks = p->nsizes;
	}
}

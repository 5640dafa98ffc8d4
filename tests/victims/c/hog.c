// SPDX-License-Identifier: Apache-2.0

/* A real-time process that takes a share of one CPU: it spins for duty/100 of
 * each period and sleeps for the rest.
 *
 *   hog --cpu N --duty PERCENT --period-us N [--seconds N]
 *
 * It prints "ready", then runs until its standard input ends or the seconds are
 * over, and at its end prints {"periods":N,"busy_ns":N}. */

#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

int main(int argc, char **argv)
{
	static const struct option flags[] = {
		{"cpu", 1, 0, 'c'}, {"duty", 1, 0, 'd'}, {"period-us", 1, 0, 'p'}, {"seconds", 1, 0, 's'}, {0},
	};
	int f, cpu = 0, duty = 50;
	int64_t period = 10000, seconds = 600, periods = 0, busy = 0;
	while ((f = getopt_long(argc, argv, "", flags, NULL)) != -1) {
		switch (f) {
		case 'c': cpu = atoi(optarg); break;
		case 'd': duty = atoi(optarg); break;
		case 'p': period = atoll(optarg); break;
		case 's': seconds = atoll(optarg); break;
		default: return 2;
		}
	}
	if (duty < 1 || duty > 90 || period < 100) {
		fprintf(stderr, "the duty must be 1 to 90 percent, the period at least 100 us\n");
		return 2;
	}
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	struct sched_param prio = {.sched_priority = 10};
	if (sched_setaffinity(0, sizeof set, &set)) {
		perror("pinning");
		return 1;
	}
	if (sched_setscheduler(0, SCHED_FIFO, &prio)) {
		perror("asking for SCHED_FIFO");
		return 3;
	}
	puts("ready");
	fflush(stdout);
	period *= 1000;
	int64_t at = now_ns(), end = at + seconds * 1000000000LL;
	struct pollfd in = {.fd = 0, .events = POLLIN};
	while (at < end && poll(&in, 1, 0) == 0) {
		int64_t start = now_ns(), stop = at + period * duty / 100;
		while (now_ns() < stop)
			;
		busy += now_ns() - start;
		periods++;
		at += period;
		struct timespec t = {at / 1000000000, at % 1000000000};
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
			;
	}
	printf("{\"periods\":%lld,\"busy_ns\":%lld}\n", (long long)periods, (long long)busy);
	return 0;
}

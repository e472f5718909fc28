/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_STAMP_CLOCK_H
#define FORKTAIL_STAMP_CLOCK_H

#include <stdint.h>
#include <time.h>

/*
 * Converts the kernel's receive timestamps, which are of CLOCK_REALTIME, to CLOCK_MONOTONIC. Both
 * clocks run at one speed, and only setting the time of day changes their distance.
 */
struct stamp_clock {
	int64_t ahead;  /* CLOCK_REALTIME - CLOCK_MONOTONIC, ns */
	uint64_t error; /* the most that `ahead` may be off, ns; the largest of the run */
	uint64_t steps; /* how often the time of day was set */
	uint64_t next;  /* when to look again */
};

struct stamp_clock stamp_clock_open(void);

/* Measures the distance again where it is due. */
void stamp_clock_follow(struct stamp_clock *clock, uint64_t now);

uint64_t stamp_clock_monotonic(const struct stamp_clock *clock, const struct timespec *stamp);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_CLOCK_H
#define FORKTAIL_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_S 1000000000ULL
#define NS_PER_MS 1000000ULL
#define NS_PER_US 1000ULL

#define NEVER UINT64_MAX

/* Nanoseconds of CLOCK_MONOTONIC, which is the clock of bpf_ktime_get_ns. */
static inline uint64_t clock_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_ARRIVALS_H
#define FORKTAIL_ARRIVALS_H

#include <stdint.h>

enum arrival_process { ARRIVALS_CONSTANT, ARRIVALS_POISSON };

/* The intended times of an open loop: they follow from the rate and the seed, never from replies.
 */
struct arrivals {
	enum arrival_process process;
	double interval_ns;
	uint64_t seed;
	uint64_t sequence;
	double offset_ns;
};

struct arrivals arrivals_of(enum arrival_process process, double rate, uint64_t seed);

/* The next query's intended time in ns after the schedule's origin. */
uint64_t arrivals_next(struct arrivals *arrivals);

#endif

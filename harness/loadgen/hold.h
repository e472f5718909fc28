/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_HOLD_H
#define FORKTAIL_HOLD_H

#include <stdbool.h>
#include <stdint.h>

/*
 * The times for which a socket was full, so that its queries waited for the server. What a query
 * waited besides, it waited for the generator; the two must never be confused, so a hold ends
 * at the last instant at which the socket is known to have been full.
 */
struct hold {
	bool full;
	uint64_t since;                  /* of the hold under way */
	uint64_t total;                  /* ns of all holds that have ended */
	uint64_t last_since, last_until; /* the one that ended last */
};

static inline uint64_t hold_later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline void hold_begin(struct hold *hold, uint64_t now)
{
	if (!hold->full)
		hold->since = now;
	hold->full = true;
}

/* A socket was seen to be full when the hold began, so it cannot end before. */
static inline void hold_end(struct hold *hold, uint64_t until)
{
	hold->full = false;
	hold->last_since = hold->since;
	hold->last_until = hold_later(until, hold->since);
	hold->total += hold->last_until - hold->last_since;
}

/*
 * The ns of ended holds until `time`. A time before the last hold began gets too large a sum,
 * which leaves the generator more of the blame and not less.
 */
static inline uint64_t hold_before(const struct hold *hold, uint64_t time)
{
	uint64_t after = hold_later(time, hold->last_since);

	return after < hold->last_until ? hold->total - (hold->last_until - after) : hold->total;
}

#endif

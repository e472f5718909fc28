/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_RANDOM_H
#define FORKTAIL_RANDOM_H

#include <stdint.h>

/* SplitMix64 (Steele, Lea and Flood, 2014): a Weyl sequence through a mixing function. */
struct random {
	uint64_t state;
};

static inline uint64_t random_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

static inline uint64_t random_next(struct random *random)
{
	random->state += 0x9e3779b97f4a7c15ULL;
	return random_mix(random->state);
}

/*
 * The stream that belongs to one query. It follows from the seed and the query's number alone,
 * so that a query which has to wait need not be stored: it is drawn again.
 */
static inline struct random random_of(uint64_t seed, uint64_t sequence)
{
	return (struct random){random_mix(random_mix(seed) + sequence * 0xd1342543de82ef95ULL)};
}

/* In [0, 1). */
static inline double random_unit(struct random *random)
{
	return (double)(random_next(random) >> 11) * 0x1p-53;
}

/* In [0, bound). The bias of at most bound / 2^64 is beyond what any run can show. */
static inline uint64_t random_below(struct random *random, uint64_t bound)
{
	return (uint64_t)(((unsigned __int128)random_next(random) * bound) >> 64);
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_KEYS_H
#define FORKTAIL_KEYS_H

#include "random.h"

#include <stdint.h>

/* Keys are 8 hexadecimal digits unless a peer's are filled in, so there are at most this many. */
#define KEYS_MAX (1ULL << 32)

/* What keys are called: a prefix, and their number counted from `first` in so many digits. */
enum key_naming { KEYS_OURS, KEYS_MEMTIER, KEYS_REDIS_BENCHMARK };

struct key_names {
	const char *prefix;
	unsigned int digits, base;
	uint64_t first, most;
};

extern const struct key_names key_names[];

enum key_shape { KEYS_UNIFORM, KEYS_GAUSSIAN, KEYS_ZIPF };

struct key_distribution {
	enum key_shape shape;
	uint64_t keys;
	double mean, sigma; /* fractions of the key range */
	double theta;
	double area_first, area_last, sure; /* of the Zipf sampler */
	uint64_t stride;
};

struct key_distribution keys_uniform(uint64_t keys);
struct key_distribution keys_gaussian(uint64_t keys, double mean, double sigma);
struct key_distribution keys_zipf(uint64_t keys, double theta);

/* A key's index in [0, keys). */
uint64_t keys_draw(const struct key_distribution *distribution, struct random *random);

#endif

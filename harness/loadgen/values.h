/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_VALUES_H
#define FORKTAIL_VALUES_H

#include <stddef.h>
#include <stdint.h>

/*
 * Every value is a slice of one pool of random bytes followed by constant bytes: nothing is
 * generated or copied while a run measures. The constant part ends in the CR LF of RESP.
 */
struct value_pool {
	size_t value_bytes;
	size_t random_bytes; /* of each value */
	size_t tail_bytes;
	char *random;
	char *tail;
};

struct value_pool value_pool_of(size_t value_bytes, double entropy, uint64_t seed);

/* The random part of the value numbered so. */
const char *value_pool_slice(const struct value_pool *pool, uint64_t number);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "values.h"

#include "fail.h"
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Slices start anywhere in this span; one that stays in the second-level cache. */
#define SPAN_BYTES (1U << 20)

struct value_pool value_pool_of(size_t value_bytes, double entropy, uint64_t seed)
{
	struct value_pool pool = {.value_bytes = value_bytes};

	pool.random_bytes = (size_t)llround((double)value_bytes * entropy);
	pool.tail_bytes = value_bytes - pool.random_bytes + 2;

	size_t words = (SPAN_BYTES + pool.random_bytes) / sizeof(uint64_t) + 1;
	uint64_t *random = malloc(words * sizeof(uint64_t));

	pool.tail = malloc(pool.tail_bytes);
	if (!random || !pool.tail)
		fail(EXIT_ENVIRONMENT, "no memory for values of %zu bytes", value_bytes);

	struct random source = {seed};

	for (size_t i = 0; i < words; i++)
		random[i] = random_next(&source);
	pool.random = (char *)random;
	memset(pool.tail, 'x', pool.tail_bytes);
	memcpy(pool.tail + pool.tail_bytes - 2, "\r\n", 2);
	return pool;
}

const char *value_pool_slice(const struct value_pool *pool, uint64_t number)
{
	return pool->random + number % SPAN_BYTES;
}

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_WORKLOAD_H
#define FORKTAIL_WORKLOAD_H

#include "keys.h"

#include <stdbool.h>
#include <stdint.h>

enum operation { OPERATION_GET = 0, OPERATION_SET = 1 };

struct query {
	enum operation operation;
	uint32_t key;
	uint64_t value; /* which slice of the value pool */
};

struct workload {
	uint64_t seed;
	uint64_t sets, gets; /* the ratio */
	struct key_distribution keys;
	bool sequential; /* SETs walk the keys upward from first_key */
	uint64_t first_key;
};

enum operation workload_operation(const struct workload *workload, uint64_t sequence);

/* What the query of this number asks; a pure function, so a query is never stored. */
struct query workload_query(const struct workload *workload, uint64_t sequence);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "workload.h"

/* Drawn, not alternated: a fixed pattern would tie operations to connections. */
static enum operation draw_operation(const struct workload *workload, struct random *random)
{
	uint64_t draw = random_below(random, workload->sets + workload->gets);

	return draw < workload->sets ? OPERATION_SET : OPERATION_GET;
}

enum operation workload_operation(const struct workload *workload, uint64_t sequence)
{
	struct random random = random_of(workload->seed, sequence);

	return draw_operation(workload, &random);
}

struct query workload_query(const struct workload *workload, uint64_t sequence)
{
	struct random random = random_of(workload->seed, sequence);
	struct query query = {.operation = draw_operation(workload, &random)};

	query.value = random_next(&random);
	if (workload->sequential && query.operation == OPERATION_SET)
		query.key = (uint32_t)(workload->first_key + sequence);
	else
		query.key = (uint32_t)keys_draw(&workload->keys, &random);
	return query;
}

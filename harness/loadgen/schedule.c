/* SPDX-License-Identifier: Apache-2.0 */
#include "schedule.h"

#include "arrivals.h"
#include "fail.h"

#include <inttypes.h>
#include <stdio.h>

int schedule(const struct options *options)
{
	struct workload workload = options_workload(options);
	struct arrivals arrivals = arrivals_of(options->arrivals, options->rate, options->seed);

	puts("sequence\tintended_ns\tconnection\toperation\tkey");
	for (uint64_t sequence = 0; sequence < options->queries; sequence++) {
		struct query query = workload_query(&workload, sequence);

		printf("%" PRIu64 "\t%" PRIu64 "\t%" PRIu64 "\t%s\t%08" PRIx32 "\n", sequence,
		       arrivals_next(&arrivals), sequence % options->connections,
		       query.operation == OPERATION_SET ? "SET" : "GET", query.key);
	}
	if (fflush(stdout) || ferror(stdout))
		fail(EXIT_ENVIRONMENT, "cannot write the schedule to standard output");
	return 0;
}

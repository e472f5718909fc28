/* SPDX-License-Identifier: Apache-2.0 */
#include "arrivals.h"

#include "clock.h"
#include "random.h"

#include <math.h>

/* Keeps the gaps independent of the keys, which are drawn from the seed itself. */
#define ARRIVALS_STREAM 0x6172726976616c73ULL

struct arrivals arrivals_of(enum arrival_process process, double rate, uint64_t seed)
{
	return (struct arrivals){
	    .process = process,
	    .interval_ns = (double)NS_PER_S / rate,
	    .seed = seed ^ ARRIVALS_STREAM,
	};
}

uint64_t arrivals_next(struct arrivals *arrivals)
{
	uint64_t sequence = arrivals->sequence++;

	if (arrivals->process == ARRIVALS_CONSTANT)
		return (uint64_t)((double)sequence * arrivals->interval_ns);

	struct random random = random_of(arrivals->seed, sequence);

	arrivals->offset_ns -= log1p(-random_unit(&random)) * arrivals->interval_ns;
	return (uint64_t)arrivals->offset_ns;
}

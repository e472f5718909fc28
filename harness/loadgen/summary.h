/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_SUMMARY_H
#define FORKTAIL_SUMMARY_H

#include "traffic.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>

struct summary {
	struct traffic_counts counts;
	uint64_t in_flight, unsent;
	uint64_t start, end;
	double rate_wanted, rate_intended, rate_sent;
	struct quantiles {
		uint64_t samples;
		uint64_t p50, p99, p999, max; /* ns */
	} lag, latency, read_delay, idle;
	uint64_t held;      /* queries that waited for room in their sockets */
	uint64_t unstamped; /* replies that count from their reading */
	uint64_t stamp_error, clock_steps;
	bool late, conserved, server_gone;
	struct rusage cost;
};

/* Computes everything from the records, and proves that they agree with what the loop counted. */
struct summary summary_of(const struct traffic *traffic, double rate);

/* Sorts the values. */
struct quantiles quantiles_of(uint64_t *values, uint64_t samples);

/* The resources used between two readings. */
struct rusage cost_between(const struct rusage *before, const struct rusage *after);

/* Prints the `end` line. */
void summary_print(const struct summary *summary, const struct error_tally *errors);

#endif

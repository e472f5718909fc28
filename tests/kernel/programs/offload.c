// SPDX-License-Identifier: Apache-2.0
/* Async-fork with 1 GiB resident: how long fork() takes with and without, and that each table which
 * the parent writes to before it is copied is one interruption, in copy_pmd_range(). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <time.h>

#include "family.h"
#include "flight.h"
#include "knobs.h"
#include "pages.h"

#define TRACING "/sys/kernel/tracing/"
#define TABLES 512
#define TABLES_WRITTEN 100

static double milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static double fork_once(struct pages *pages, double *end)
{
	double began = milliseconds();
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		_exit(!pages_intact(pages));
	}
	double took = milliseconds() - began;

	if (!family_join(&child))
		tap_bail_out("the child does not have the memory of the fork");
	*end = milliseconds() - began;
	/* Exclusive again, as before the first fork. */
	pages_write_all(pages);
	return took;
}

static void shorter(struct pages *pages)
{
	double all_of_it[2];
	double end;

	if (!knobs_set_threads(0))
		tap_bail_out("memory.async_fork cannot be set: %s", strerror(errno));
	all_of_it[0] = fork_once(pages, &end);
	knobs_set_threads(flight_threads());
	all_of_it[1] = fork_once(pages, &end);
	tap_ok(all_of_it[1] * 5 < all_of_it[0],
	       "fork() of 1 GiB takes %.3f ms, and %.3f ms if the child copies", all_of_it[0],
	       all_of_it[1]);
}

/* How many calls of copy_pmd_range() the tracer saw, and how many begins and ends of a sync. */
static void read_trace(int *calls, int *begins, int *ends)
{
	FILE *file = fopen(TRACING "trace", "r");
	char line[512];

	*calls = *begins = *ends = 0;
	while (file && fgets(line, sizeof(line), file)) {
		*calls += strstr(line, "copy_pmd_range <-") != NULL;
		*begins += strstr(line, "fork_pt_sync_begin:") && strstr(line, "reason=fault");
		*ends += strstr(line, "fork_pt_sync_end:") && strstr(line, "tables=1");
	}
	if (file)
		fclose(file);
}

static void interruptions(struct pages *pages)
{
	double slowest = 0;
	char pid[16];
	int calls;
	int begins;
	int ends;

	flight_hold(FLIGHT_ALL);
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		_exit(!pages_intact(pages));
	}
	flight_await_hold();
	/* What the parent needs to trace itself is written to now. */
	for (int round = 0; round < 2; round++) {
		snprintf(pid, sizeof(pid), "%d", getpid());
		knobs_demand(TRACING "tracing_on", "0");
		knobs_demand(TRACING "trace", "");
		knobs_demand(TRACING "set_ftrace_filter", "copy_pmd_range");
		knobs_demand(TRACING "set_ftrace_pid", pid);
		knobs_demand(TRACING "set_event_pid", pid);
		knobs_demand(TRACING "events/fork_pt/enable", "1");
		knobs_demand(TRACING "current_tracer", "function");
		knobs_demand(TRACING "tracing_on", "1");
		read_trace(&calls, &begins, &ends);
	}
	knobs_demand(TRACING "trace", "");
	for (size_t i = 0; i < TABLES_WRITTEN; i++) {
		size_t page = 20 + 512 + i * 2 * 512;
		double began = milliseconds();

		pages_write(pages, page);
		double took = milliseconds() - began;

		slowest = took > slowest ? took : slowest;
		pages_write(pages, page + 100);
		pages_write(pages, page + 400);
	}
	knobs_demand(TRACING "tracing_on", "0");
	read_trace(&calls, &begins, &ends);
	knobs_demand(TRACING "current_tracer", "nop");
	knobs_demand(TRACING "events/fork_pt/enable", "0");
	flight_release();
	tap_ok(family_join(&child), "the child keeps the memory of the fork");
	/* The stamps are in a table or two themselves. */
	tap_ok(calls >= TABLES_WRITTEN && calls <= TABLES_WRITTEN + 3,
	       "%d tables written to are %d calls of copy_pmd_range()", TABLES_WRITTEN, calls);
	tap_ok(begins == calls && ends == calls, "and %d begins, %d ends of a sync", begins, ends);
	tap_note("slowest write %.3f ms", slowest);
}

int main(void)
{
	if (!flight_possible("offloading"))
		return tap_done();
	struct pages pages = pages_make(TABLES);

	shorter(&pages);
	interruptions(&pages);
	tap_ok(pages_intact(&pages), "the memory is as it was");
	return tap_done();
}

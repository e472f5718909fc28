// SPDX-License-Identifier: Apache-2.0
#ifndef FORKTAIL_TRACED_H
#define FORKTAIL_TRACED_H

#include "knobs.h"
#include "tap.h"

#define TRACING "/sys/kernel/tracing/"

/* Whether fork() leaves page tables for later in this mode, by sharing them or by Async-fork. */
static inline bool traced_lazily(void)
{
	char shares = '0';
	int file = open("/proc/self/use_odf", O_RDONLY);

	if (file >= 0) {
		if (read(file, &shares, 1) != 1)
			shares = '0';
		close(file);
	}
	return shares == '1' || knobs_async_fork();
}

/* From now on what fork() does is written down. */
static inline void traced_begin(void)
{
	if (!knobs_set(TRACING "tracing_on", "0") || !knobs_set(TRACING "trace_clock", "mono") ||
	    !knobs_set(TRACING "events/fork_pt/fork_pt_done/enable", "1") ||
	    !knobs_set(TRACING "tracing_on", "1"))
		tap_bail_out("fork() cannot be traced: %s", strerror(errno));
	/* Opening them so empties them; a program before may have asked for its own events alone.
	 */
	close(open(TRACING "set_event_pid", O_WRONLY | O_TRUNC));
	close(open(TRACING "trace", O_WRONLY | O_TRUNC));
}

/*
 * How many tables the last fork() of the caller since then had copied when it returned, and 0 if it
 * left them to a child that copied them in a flight. To be called when the child has ended.
 */
static inline long traced_copied(void)
{
	FILE *file = fopen(TRACING "trace", "r");
	char line[512];
	long copied = -1;

	while (file && fgets(line, sizeof(line), file)) {
		char *event = strstr(line, "fork_pt_done:");
		char *bracket = strstr(line, " [");
		long tables;
		int parent;

		if (!event || !bracket)
			continue;
		*bracket = 0;
		char *dash = strrchr(line, '-');

		if (dash &&
		    sscanf(event, "fork_pt_done: tgid=%d %*s %*s tables=%ld", &parent, &tables) ==
			2 &&
		    parent == getpid())
			copied = atoi(dash + 1) == parent ? tables : 0;
	}
	if (file)
		fclose(file);
	knobs_set(TRACING "events/fork_pt/fork_pt_done/enable", "0");
	if (copied < 0)
		tap_bail_out("the trace has no fork() of this process");
	return copied;
}

#endif

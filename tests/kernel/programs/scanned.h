// SPDX-License-Identifier: Apache-2.0
#ifndef FORKTAIL_SCANNED_H
#define FORKTAIL_SCANNED_H

#include <pthread.h>
#include <time.h>

#include "counters.h"
#include "knobs.h"

#define SCANNED_SWITCH "/proc/sys/kernel/numa_balancing"

static inline bool scanned_possible(void)
{
	return access("/sys/devices/system/node/node1", F_OK) == 0 &&
	       access(SCANNED_SWITCH, W_OK) == 0 &&
	       counters_there("/proc/vmstat", "numa_pte_updates");
}

static inline void *scanned_sleep(void *unused)
{
	pause();
	return unused;
}

/*
 * NUMA balancing begins: it takes away the access to pages of this process, to learn by the faults
 * who uses them. Of a process with one thread it would leave out the pages of the node it runs on.
 */
static inline void scanned_begin(void)
{
	pthread_t thread;

	if (!knobs_set(SCANNED_SWITCH, "1") || pthread_create(&thread, NULL, scanned_sleep, NULL))
		tap_bail_out("NUMA balancing: %s", strerror(errno));
}

static inline void scanned_end(void)
{
	knobs_set(SCANNED_SWITCH, "0");
}

/* Until so many more pages were taken away, or it takes too long; it is done while we run. */
static inline bool scanned_await(long wanted, time_t seconds)
{
	long before = counters_read("/proc/vmstat", "numa_pte_updates");
	struct timespec now;
	struct timespec end;

	clock_gettime(CLOCK_MONOTONIC, &end);
	do {
		if (counters_read("/proc/vmstat", "numa_pte_updates") - before >= wanted)
			return true;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < end.tv_sec + seconds);
	return false;
}

#endif

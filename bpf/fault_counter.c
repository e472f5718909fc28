// SPDX-License-Identifier: Apache-2.0
#include "fault_counter.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

static const unsigned long long configs[FAULT_COUNTERS] = {PERF_COUNT_SW_PAGE_FAULTS_MIN,
							   PERF_COUNT_SW_PAGE_FAULTS_MAJ};

int fault_counter_open(pid_t tid, int kind)
{
	/* Threads born later inherit it; forked children do not. */
	struct perf_event_attr attr = {
	    .type = PERF_TYPE_SOFTWARE,
	    .size = sizeof(attr),
	    .config = configs[kind],
	    .sample_period = 1,
	    .sample_type = PERF_SAMPLE_ADDR,
	    .inherit = 1,
	    .inherit_thread = 1,
	};
	long fd = syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : (int)fd;
}

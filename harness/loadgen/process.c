/* SPDX-License-Identifier: Apache-2.0 */
#include "process.h"

#include "fail.h"
#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#define STACK_BYTES (128U << 10)

void process_follow_parent(void)
{
	prctl(PR_SET_PDEATHSIG, SIGTERM);
}

void process_schedule(uint64_t fifo, uint64_t cpu)
{
	prctl(PR_SET_TIMERSLACK, 1);
	if (cpu != OPTION_NONE) {
		cpu_set_t cpus;

		CPU_ZERO(&cpus);
		CPU_SET(cpu, &cpus);
		if (sched_setaffinity(0, sizeof(cpus), &cpus))
			fail(EXIT_ENVIRONMENT, "cannot stay on CPU %" PRIu64 ": %s", cpu,
			     strerror(errno));
	}
	if (fifo != OPTION_NONE) {
		struct sched_param priority = {.sched_priority = (int)fifo};

		if (sched_setscheduler(0, SCHED_FIFO, &priority))
			fail(EXIT_ENVIRONMENT, "cannot run under SCHED_FIFO: %s", strerror(errno));
	}
}

__attribute__((noinline)) static void touch_stack(void)
{
	char stack[STACK_BYTES];

	explicit_bzero(stack, sizeof(stack));
}

void process_lock_memory(void)
{
	touch_stack();
	mlockall(MCL_CURRENT);
}

// SPDX-License-Identifier: Apache-2.0
#ifndef FORKTAIL_REAPER_H
#define FORKTAIL_REAPER_H

#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tap.h"

/*
 * Kill a process and reap its memory, as the OOM reaper does. On one CPU with it, the victim cannot
 * run before that is done, since who reaps does not sleep.
 */
static inline bool reaper_kill(pid_t pid)
{
	int descriptor = (int)syscall(SYS_pidfd_open, pid, 0);
	struct sched_param first = {.sched_priority = 1};
	struct sched_param none = {0};

	sched_setscheduler(0, SCHED_FIFO, &first);
	kill(pid, SIGKILL);
	int result = (int)syscall(SYS_process_mrelease, descriptor, 0);

	sched_setscheduler(0, SCHED_OTHER, &none);
	if (result)
		tap_note("process_mrelease: %s", strerror(errno));
	close(descriptor);
	return result == 0;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's own counters of a thread's faults, which tick when a fault is complete. */
#ifndef FORKTAIL_FAULT_COUNTER_H
#define FORKTAIL_FAULT_COUNTER_H

#include <sys/types.h>

/* Minor and major: a fault that had to wait for a lock counts as major. */
#define FAULT_COUNTERS 2

/* Returns a perf event's descriptor or a negative errno. */
int fault_counter_open(pid_t tid, int kind);

#endif

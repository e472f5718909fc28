/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_PROCESS_H
#define FORKTAIL_PROCESS_H

#include <stdint.h>

/* Gets SIGTERM when the parent ends. */
void process_follow_parent(void);

/* Asks for wake-ups as precise as they get, and for the CPU and priority unless OPTION_NONE. */
void process_schedule(uint64_t fifo, uint64_t cpu);

/* Faults in and locks what a run touches; without the right to lock, it faults in all the same. */
void process_lock_memory(void);

#endif

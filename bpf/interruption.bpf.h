/* SPDX-License-Identifier: GPL-2.0-only */
/* A copy of page tables by the server outside fork, however its begin and its end are seen. */
#ifndef FORKTAIL_INTERRUPTION_BPF_H
#define FORKTAIL_INTERRUPTION_BPF_H

#include "state.bpf.h"

static __always_inline void interruption_entered(__u64 address)
{
	struct thread *thread;

	if (!gate_open)
		return;
	thread = server_thread();
	if (!thread || thread->fork_start)
		return;
	thread->interruption_address = address;
	thread->interruption_start = bpf_ktime_get_ns();
	count_entry(MEASURE_INTERRUPTION);
}

/* The reason is 0 where nothing tells it. */
static __always_inline void interruption_left(__u64 reason)
{
	__u64 now = bpf_ktime_get_ns();
	struct thread *thread = server_thread();
	struct cpu_counts *cpu = this_cpu();
	__u64 start;

	if (!cpu || !thread || !thread->interruption_start)
		return;
	start = thread->interruption_start;
	thread->interruption_start = 0;
	count_exit(cpu, MEASURE_INTERRUPTION);
	emit(cpu, EVENT_INTERRUPTION, bpf_get_current_pid_tgid(), start, now - start,
	     thread->interruption_address, reason ?: thread->sync_reason);
}

#endif

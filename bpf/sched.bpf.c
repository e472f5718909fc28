// SPDX-License-Identifier: GPL-2.0-only
/* Run-queue delay: a thread of the server that could run and did not. */
#include "state.bpf.h"

static __always_inline void woke(__u32 tgid, __u32 tid)
{
	struct thread *thread;

	if (!gate_open || tgid != server_tgid)
		return;
	thread = thread_of(tid);
	if (!thread || thread->runnable_since)
		return;
	thread->runnable_reason = RUN_QUEUE_WAKING;
	thread->runnable_since = bpf_ktime_get_ns();
}

static __always_inline void switched_out(__u32 tgid, __u32 tid, bool runnable)
{
	struct thread *thread;

	if (tgid != server_tgid)
		return;
	thread = thread_of(tid);
	if (!thread)
		return;
	/* Also forgets a wakeup that came while the thread still ran: it waited for nothing. */
	thread->runnable_since = gate_open && runnable ? bpf_ktime_get_ns() : 0;
	thread->runnable_reason = RUN_QUEUE_PREEMPTED;
}

static __always_inline void switched_in(__u32 tgid, __u32 tid)
{
	struct cpu_counts *cpu;
	struct thread *thread;
	__u64 start;

	if (tgid != server_tgid)
		return;
	thread = thread_of(tid);
	cpu = this_cpu();
	if (!cpu || !thread || !thread->runnable_since)
		return;
	start = thread->runnable_since;
	thread->runnable_since = 0;
	emit(cpu, EVENT_RUN_QUEUE, (__u64)tgid << 32 | tid, start, bpf_ktime_get_ns() - start,
	     thread->runnable_reason, 0);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(run_queue_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	switched_out((__u32)prev->tgid, (__u32)prev->pid, preempt || !prev_state);
	switched_in((__u32)next->tgid, (__u32)next->pid);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(run_queue_wakeup, struct task_struct *task)
{
	woke((__u32)task->tgid, (__u32)task->pid);
	return 0;
}

SEC("raw_tp/sched_switch")
int BPF_PROG(run_queue_raw_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	switched_out((__u32)BPF_CORE_READ(prev, tgid), (__u32)BPF_CORE_READ(prev, pid),
		     preempt || !prev_state);
	switched_in((__u32)BPF_CORE_READ(next, tgid), (__u32)BPF_CORE_READ(next, pid));
	return 0;
}

SEC("raw_tp/sched_wakeup")
int BPF_PROG(run_queue_raw_wakeup, struct task_struct *task)
{
	woke((__u32)BPF_CORE_READ(task, tgid), (__u32)BPF_CORE_READ(task, pid));
	return 0;
}

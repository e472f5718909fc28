// SPDX-License-Identifier: GPL-2.0-only
/* A thread of the server off its CPU: waiting for one though it could run (run-queue delay), or
 * blocked in uninterruptible sleep. What it waits for of its own accord, such as the next query, is
 * neither. */
#include "state.bpf.h"

/* TASK_UNINTERRUPTIBLE, which has kept this bit since before BPF. */
#define STATE_UNINTERRUPTIBLE 0x2

/* A time that was taken since the gate was opened. One from before was left behind by a thread
 * whose wait outlasted an earlier window. */
static __always_inline bool is_current(__u64 since)
{
	return since && since >= gate_opened_ns;
}

static __always_inline void woke(__u32 tgid, __u32 tid)
{
	struct thread *thread;
	__u64 now, since;

	if (tgid != server_tgid)
		return;
	thread = thread_of(tid);
	if (!thread)
		return;
	now = bpf_ktime_get_ns();
	since = thread->blocked_since;
	thread->blocked_since = 0;
	if (is_current(since)) {
		struct cpu_counts *cpu = this_cpu();

		if (cpu)
			emit(cpu, EVENT_BLOCKED, (__u64)tgid << 32 | tid, since, now - since, 0,
			     thread->blocked_aux);
	}
	if (!gate_open || is_current(thread->runnable_since))
		return;
	thread->runnable_reason = RUN_QUEUE_WAKING;
	thread->runnable_since = now;
}

static __always_inline void switched_out(struct thread *thread, bool preempt, __u32 state,
					 bool for_io)
{
	bool runnable = preempt || !state;
	__u64 now = gate_open ? bpf_ktime_get_ns() : 0;

	/* Also forgets a wakeup that came while the thread still ran: it waited for nothing. */
	thread->runnable_since = runnable ? now : 0;
	thread->runnable_reason = RUN_QUEUE_PREEMPTED;
	thread->blocked_since = !runnable && state & STATE_UNINTERRUPTIBLE ? now : 0;
	thread->blocked_aux = for_io ? BLOCKED_FOR_IO : 0;
}

static __always_inline void switched_in(__u32 tgid, __u32 tid)
{
	struct cpu_counts *cpu;
	struct thread *thread;
	__u64 start;

	thread = thread_of(tid);
	cpu = this_cpu();
	if (!cpu || !thread)
		return;
	start = thread->runnable_since;
	thread->runnable_since = 0;
	if (is_current(start))
		emit(cpu, EVENT_RUN_QUEUE, (__u64)tgid << 32 | tid, start,
		     bpf_ktime_get_ns() - start, thread->runnable_reason, 0);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(run_queue_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	if ((__u32)prev->tgid == server_tgid) {
		struct thread *thread = thread_of((__u32)prev->pid);

		if (thread)
			switched_out(thread, preempt, prev_state,
				     BPF_CORE_READ_BITFIELD(prev, in_iowait));
	}
	if ((__u32)next->tgid == server_tgid)
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
	__u32 tgid = (__u32)BPF_CORE_READ(next, tgid);

	if ((__u32)BPF_CORE_READ(prev, tgid) == server_tgid) {
		struct thread *thread = thread_of((__u32)BPF_CORE_READ(prev, pid));

		if (thread)
			switched_out(thread, preempt, prev_state,
				     BPF_CORE_READ_BITFIELD_PROBED(prev, in_iowait));
	}
	if (tgid == server_tgid)
		switched_in(tgid, (__u32)BPF_CORE_READ(next, pid));
	return 0;
}

SEC("raw_tp/sched_wakeup")
int BPF_PROG(run_queue_raw_wakeup, struct task_struct *task)
{
	woke((__u32)BPF_CORE_READ(task, tgid), (__u32)BPF_CORE_READ(task, pid));
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/* The server's fork: from the entry of clone, or from a place soon after it, to its return in the
 * parent. */
#include "state.bpf.h"

#define CLONE_VM 0x00000100
#define CLONE_THREAD 0x00010000

#if defined(__TARGET_ARCH_x86)
#define NR_CLONE 56
#define NR_FORK 57
#define NR_VFORK 58
#define NR_CLONE3 435
#else
#error "system call numbers of this architecture are missing"
#endif

static __always_inline void fork_begins(struct thread *thread)
{
	thread->fork_child = 0;
	thread->copy_start = 0;
	thread->copy_duration = 0;
	thread->copy_tables = 0;
	thread->fork_start = bpf_ktime_get_ns();
}

static __always_inline void fork_entered(void)
{
	struct thread *thread = server_thread();

	if (!thread)
		return;
	fork_begins(thread);
	count_entry(MEASURE_FORK);
}

static __always_inline void emit_fork(struct cpu_counts *cpu, const struct thread *thread,
				      __u64 start, __u64 now)
{
	__u64 id = bpf_get_current_pid_tgid();

	if (thread->copy_start)
		emit(cpu, EVENT_PAGE_TABLE_COPY, id, thread->copy_start, thread->copy_duration,
		     thread->copy_tables, 0);
	emit(cpu, EVENT_FORK, id, start, now - start, thread->fork_flags, thread->fork_child);
}

static __always_inline void fork_left(void)
{
	struct thread *thread = server_thread();
	struct cpu_counts *cpu;
	__u64 start, now;

	if (!thread || !thread->fork_start)
		return;
	now = bpf_ktime_get_ns();
	cpu = this_cpu();
	if (!cpu)
		return;
	start = thread->fork_start;
	thread->fork_start = 0;
	count_exit(cpu, MEASURE_FORK);
	if (thread->fork_child)
		emit_fork(cpu, thread, start, now);
}

/* Here the child's root id and the flags are known, and it has not run yet. */
SEC("tp_btf/task_newtask")
int BPF_PROG(child_born, struct task_struct *task, __u64 clone_flags)
{
	struct thread empty = {};
	struct thread *thread;
	__u32 child = (__u32)task->pid;
	__u64 id = bpf_get_current_pid_tgid();
	struct child born = {};

	if (id >> 32 != server_tgid)
		return 0;
	if (clone_flags & CLONE_THREAD) {
		bpf_map_update_elem(&threads, &child, &empty, BPF_ANY);
		return 0;
	}
	if (clone_flags & CLONE_VM)
		return 0;
	if (gate_open && !window_child)
		window_child = child;
	thread = thread_of((__u32)id);
	if (thread) {
		thread->fork_child = child;
		thread->fork_flags = clone_flags;
		/* The flight that is not over by now is the child's. */
		born.flight_start = thread->flight_start;
		born.flight_tables = thread->flight_tables;
		thread->flight_start = 0;
	}
	bpf_map_update_elem(&children, &child, &born, BPF_ANY);
	if (!thread || !thread->fork_start) {
		struct cpu_counts *cpu = this_cpu();

		if (cpu)
			emit(cpu, EVENT_FORK_UNMEASURED, id, bpf_ktime_get_ns(), 0, clone_flags,
			     child);
	}
	return 0;
}

SEC("fentry/kernel_clone")
int fork_fentry(void *ctx)
{
	fork_entered();
	return 0;
}

SEC("fexit/kernel_clone")
int fork_fexit(void *ctx)
{
	fork_left();
	return 0;
}

SEC("kprobe")
int fork_kprobe(void *ctx)
{
	fork_entered();
	return 0;
}

SEC("kretprobe")
int fork_kretprobe(void *ctx)
{
	fork_left();
	return 0;
}

SEC("tracepoint")
int fork_syscall_enter(void *ctx)
{
	fork_entered();
	return 0;
}

SEC("tracepoint")
int fork_syscall_exit(void *ctx)
{
	fork_left();
	return 0;
}

/* Without a look at system calls: fork sets up the child's memory, before it copies anything into
 * it, with per-CPU counters (since Linux 6.2), and wakes the child as the last thing it does. Both
 * events are rare on the whole host, so that these programs can stay attached. A fork that fails
 * in between leaves a start behind, which the next one overwrites. */
SEC("tp_btf/percpu_alloc_percpu")
int BPF_PROG(fork_memory_enter, unsigned long call_site)
{
	__u32 tgid = (__u32)(bpf_get_current_pid_tgid() >> 32);
	struct thread *thread;

	if (trial_tgid && tgid == trial_tgid && !trial_call_site)
		trial_call_site = call_site;
	if (tgid != server_tgid || call_site != fork_call_site)
		return 0;
	thread = thread_of((__u32)bpf_get_current_pid_tgid());
	if (thread)
		fork_begins(thread);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(fork_woken, struct task_struct *task)
{
	struct thread *thread = server_thread();
	struct cpu_counts *cpu;
	__u64 start, now;

	if (!thread || !thread->fork_start || thread->fork_child != (__u64)task->pid)
		return 0;
	now = bpf_ktime_get_ns();
	cpu = this_cpu();
	if (!cpu)
		return 0;
	start = thread->fork_start;
	thread->fork_start = 0;
	count_entry(MEASURE_FORK);
	count_exit(cpu, MEASURE_FORK);
	emit_fork(cpu, thread, start, now);
	return 0;
}

SEC("raw_tp/sys_enter")
int fork_raw_enter(struct bpf_raw_tracepoint_args *ctx)
{
	switch ((int)ctx->args[1]) {
	case NR_CLONE:
	case NR_FORK:
	case NR_VFORK:
	case NR_CLONE3:
		fork_entered();
	}
	return 0;
}

SEC("raw_tp/sys_exit")
int fork_raw_exit(struct bpf_raw_tracepoint_args *ctx)
{
	fork_left();
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/* The end of the window: the death of the forked child, and what it does just before. */
#include "state.bpf.h"

#define SIGCHLD 17
#define CLD_EXITED 1
#define CLD_DUMPED 3

static __always_inline void window_ended(__u32 child)
{
	struct cpu_counts *cpu = this_cpu();

	bpf_map_delete_elem(&children, &child);
	if (cpu)
		emit(cpu, EVENT_WINDOW_END, (__u64)server_tgid << 32 | server_tgid,
		     bpf_ktime_get_ns(), 0, child, 0);
	if (child == window_child)
		gate_open = 0;
}

SEC("tp_btf/signal_generate")
int BPF_PROG(window_end_signal, int signal, struct kernel_siginfo *info, struct task_struct *task)
{
	__u32 child = (__u32)(bpf_get_current_pid_tgid() >> 32);

	if (signal != SIGCHLD || (__u32)task->tgid != server_tgid)
		return 0;
	/* A child that stops or goes on signals too. */
	if (info->si_code < CLD_EXITED || info->si_code > CLD_DUMPED)
		return 0;
	if (bpf_map_lookup_elem(&children, &child))
		window_ended(child);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(window_end_exit, struct task_struct *task)
{
	__u32 child = (__u32)task->pid;

	if (bpf_map_lookup_elem(&children, &child))
		window_ended(child);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(task_exited, struct task_struct *task)
{
	struct cpu_counts *cpu = this_cpu();
	__u32 tid = (__u32)task->pid;

	if ((__u32)task->tgid == server_tgid)
		bpf_map_delete_elem(&threads, &tid);
	else if (cpu && bpf_map_lookup_elem(&children, &tid))
		emit(cpu, EVENT_CHILD_EXIT, bpf_get_current_pid_tgid(), bpf_ktime_get_ns(), 0, tid,
		     (__u64)task->exit_code);
	return 0;
}

static __always_inline struct child *current_child(void)
{
	__u32 child = (__u32)(bpf_get_current_pid_tgid() >> 32);

	return bpf_map_lookup_elem(&children, &child);
}

static __always_inline void rename_entered(void)
{
	struct child *child = current_child();

	if (!child)
		return;
	child->rename_start = bpf_ktime_get_ns();
	count_entry(MEASURE_RENAME);
}

static __always_inline void rename_left(void)
{
	__u64 now = bpf_ktime_get_ns();
	struct child *child = current_child();
	struct cpu_counts *cpu = this_cpu();
	__u64 start;

	if (!cpu || !child || !child->rename_start)
		return;
	start = child->rename_start;
	child->rename_start = 0;
	count_exit(cpu, MEASURE_RENAME);
	emit(cpu, EVENT_RENAME, bpf_get_current_pid_tgid(), start, now - start, 0, 0);
}

SEC("fentry/vfs_rename")
int rename_fentry(void *ctx)
{
	rename_entered();
	return 0;
}

SEC("fexit/vfs_rename")
int rename_fexit(void *ctx)
{
	rename_left();
	return 0;
}

SEC("kprobe")
int rename_kprobe(void *ctx)
{
	rename_entered();
	return 0;
}

SEC("kretprobe")
int rename_kretprobe(void *ctx)
{
	rename_left();
	return 0;
}

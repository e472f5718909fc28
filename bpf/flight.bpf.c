// SPDX-License-Identifier: GPL-2.0-only
/* A fork's flight: from where it takes up the page tables until the child has all of them, or never
 * will. Where fork copies them itself, it is over before there is a child. */
#include "interruption.bpf.h"

/* All tracepoints of fork_pt have these arguments. */
enum fork_pt_argument {
	FORK_PT_TGID,
	FORK_PT_REASON,
	FORK_PT_ADDRESS,
	FORK_PT_TABLES,
};

SEC("raw_tp/fork_pt_start")
int flight_enter(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread *thread = server_thread();

	if (!thread)
		return 0;
	thread->flight_start = bpf_ktime_get_ns();
	thread->flight_tables = ctx->args[FORK_PT_TABLES];
	count_entry(MEASURE_FLIGHT);
	return 0;
}

/* The child ends the flight that its fork has left to it, whoever is in fork again meanwhile. */
static __always_inline void flight_ended(struct bpf_raw_tracepoint_args *ctx, __u64 aborted)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 id = bpf_get_current_pid_tgid();
	struct cpu_counts *cpu = this_cpu();
	__u32 child = (__u32)(id >> 32);
	__u64 start, tables;

	if (!cpu || (__u32)ctx->args[FORK_PT_TGID] != server_tgid)
		return;
	if (child == server_tgid) {
		struct thread *thread = thread_of((__u32)id);

		if (!thread)
			return;
		child = 0;
		start = thread->flight_start;
		tables = thread->flight_tables;
		thread->flight_start = 0;
	} else {
		struct child *found = bpf_map_lookup_elem(&children, &child);

		if (!found)
			return;
		start = found->flight_start;
		tables = found->flight_tables;
		found->flight_start = 0;
	}
	if (!start)
		return;
	count_exit(cpu, MEASURE_FLIGHT);
	emit(cpu, EVENT_FLIGHT, id, start, now - start, child,
	     aborted | (ctx->args[FORK_PT_TABLES] & FLIGHT_TABLES_MASK) << FLIGHT_COPIED_SHIFT |
		 (tables & FLIGHT_TABLES_MASK) << FLIGHT_TABLES_SHIFT);
}

SEC("raw_tp/fork_pt_done")
int flight_done(struct bpf_raw_tracepoint_args *ctx)
{
	flight_ended(ctx, 0);
	return 0;
}

SEC("raw_tp/fork_pt_abort")
int flight_abort(struct bpf_raw_tracepoint_args *ctx)
{
	flight_ended(ctx, FLIGHT_ABORTED);
	return 0;
}

/* Why the server copies a table after fork: taken along by the interruption that lies within. */
SEC("raw_tp/fork_pt_sync_begin")
int sync_enter(struct bpf_raw_tracepoint_args *ctx)
{
	struct thread *thread = server_thread();

	if (thread)
		thread->sync_reason = ctx->args[FORK_PT_REASON] + 1;
	return 0;
}

SEC("raw_tp/fork_pt_sync_end")
int sync_left(void *ctx)
{
	struct thread *thread = server_thread();

	if (thread)
		thread->sync_reason = 0;
	return 0;
}

SEC("raw_tp/fork_pt_sync_begin")
int interruption_sync_enter(struct bpf_raw_tracepoint_args *ctx)
{
	interruption_entered(ctx->args[FORK_PT_ADDRESS]);
	return 0;
}

SEC("raw_tp/fork_pt_sync_end")
int interruption_sync_left(struct bpf_raw_tracepoint_args *ctx)
{
	interruption_left(ctx->args[FORK_PT_REASON] + 1);
	return 0;
}

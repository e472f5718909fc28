/* SPDX-License-Identifier: GPL-2.0-only */
/* The state that all programs share, and the one way to emit an event. */
#ifndef FORKTAIL_STATE_BPF_H
#define FORKTAIL_STATE_BPF_H

#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#include "kernel_types.h"
#include "probe.h"

#define PAGE_BYTES 4096
#define MAX_THREADS 4096
#define MAX_CHILDREN 64

struct events_map {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
};

/* Forks and the ends of windows: rare, and not to be lost because faults came faster than the
 * reader. */
struct landmarks_map {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
};

struct counts_map {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu_counts);
};

/* Preallocated and filled outside the hot paths: sched_switch holds the run queue's lock, where
 * creating task storage could allocate. */
struct threads_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_THREADS);
	__type(key, __u32);
	__type(value, struct thread);
};

struct children_map {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_CHILDREN);
	__type(key, __u32);
	__type(value, struct child);
};

extern struct events_map events SEC(".maps");
extern struct landmarks_map landmarks SEC(".maps");
extern struct counts_map counts SEC(".maps");
extern struct threads_map threads SEC(".maps");
extern struct children_map children SEC(".maps");

extern const volatile __u32 server_tgid;
extern const volatile __u64 min_duration_ns[EVENT_KINDS];
extern const volatile __u64 page_table_gfp_set;
extern const volatile __u64 page_table_gfp_clear;

extern volatile __u32 gate_open;
extern volatile __u64 gate_opened_ns;
extern volatile __u32 window_child;
extern struct thread main_thread;
extern volatile __u64 fork_call_site;
extern volatile __u32 trial_tgid;
extern volatile __u64 trial_call_site;

/* The main thread does nearly all of the work of a single-threaded server: it needs no lookup. */
static __always_inline struct thread *thread_of(__u32 tid)
{
	if (tid == server_tgid)
		return &main_thread;
	return bpf_map_lookup_elem(&threads, &tid);
}

/* What the current thread is in the middle of; NULL where it is not the server's. */
static __always_inline struct thread *server_thread(void)
{
	__u64 id = bpf_get_current_pid_tgid();

	return id >> 32 == server_tgid ? thread_of((__u32)id) : NULL;
}

static __always_inline struct cpu_counts *this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counts, &zero);
}

static __always_inline void count_entry(enum measurement measurement)
{
	struct cpu_counts *cpu = this_cpu();

	if (cpu)
		__sync_fetch_and_add(&cpu->entries[measurement], 1);
}

static __always_inline void count_exit(struct cpu_counts *cpu, enum measurement measurement)
{
	__sync_fetch_and_add(&cpu->exits[measurement], 1);
}

static __always_inline bool is_frequent(enum event_kind kind)
{
	return kind == EVENT_INTERRUPTION || kind == EVENT_FAULT || kind == EVENT_RUN_QUEUE ||
	       kind == EVENT_BLOCKED;
}

/* Takes the task's id as bpf_get_current_pid_tgid returns it. */
static __always_inline void emit(struct cpu_counts *cpu, enum event_kind kind, __u64 id,
				 __u64 start, __u64 duration, __u64 context, __u64 aux)
{
	struct event *event;
	__u32 sequence;

	__sync_fetch_and_add(&cpu->events[kind].seen, 1);
	if (duration < min_duration_ns[kind]) {
		__sync_fetch_and_add(&cpu->events[kind].suppressed, 1);
		return;
	}
	/* Before asking for room, so that a record that found none leaves a gap. */
	sequence = __sync_fetch_and_add(&cpu->next_sequence, 1);
	if (is_frequent(kind))
		event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	else
		event = bpf_ringbuf_reserve(&landmarks, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&cpu->events[kind].dropped, 1);
		return;
	}
	event->start_ns = start;
	event->duration_ns = duration;
	event->context = context;
	event->aux = aux;
	event->sequence = sequence;
	event->tgid = (__u32)(id >> 32);
	event->tid = (__u32)id;
	event->cpu = (__u16)bpf_get_smp_processor_id();
	event->kind = (__u16)kind;
	/* The loader polls: waking it for each event would add a wakeup to the very path measured.
	 */
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	__sync_fetch_and_add(&cpu->events[kind].emitted, 1);
}

#endif

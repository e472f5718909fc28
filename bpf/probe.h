/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/* What the BPF programs and their loader share: records, counters, configuration. */
#ifndef FORKTAIL_PROBE_H
#define FORKTAIL_PROBE_H

#include <linux/types.h>

enum event_kind {
	EVENT_FORK = 1,
	EVENT_PAGE_TABLE_COPY = 2,
	EVENT_INTERRUPTION = 3,
	EVENT_FAULT = 4,
	EVENT_RUN_QUEUE = 5,
	EVENT_CHILD_EXIT = 6,
	EVENT_WINDOW_END = 7,
	EVENT_RENAME = 8,
	EVENT_FLIGHT = 9,
	/* A child was born of a fork whose beginning no program saw. */
	EVENT_FORK_UNMEASURED = 10,
	/* Uninterruptible sleep: a disk, a file system, a lock of the kernel. */
	EVENT_BLOCKED = 11,
	EVENT_KINDS,
};

/* One record of events.bin, and of the ring buffer: the loader copies it as it is. */
struct event {
	__u64 start_ns;
	__u64 duration_ns;
	__u64 context;
	__u64 aux;
	__u32 sequence;
	__u32 tgid;
	__u32 tid;
	__u16 cpu;
	__u16 kind;
};

#define FAULT_PAGE_PRESENT 1
#define FAULT_PRESENCE_KNOWN 2

#define RUN_QUEUE_WAKING 0
#define RUN_QUEUE_PREEMPTED 1

#define BLOCKED_FOR_IO 1

/* Of a flight: whether it failed, the tables that were copied, those that there were. */
#define FLIGHT_ABORTED 1
#define FLIGHT_COPIED_SHIFT 1
#define FLIGHT_TABLES_SHIFT 32
#define FLIGHT_TABLES_MASK 0x7fffffffULL

enum measurement {
	MEASURE_FORK,
	MEASURE_PAGE_TABLE_COPY,
	MEASURE_INTERRUPTION,
	MEASURE_FAULT,
	MEASURE_RUN_QUEUE,
	MEASURE_WINDOW_END,
	MEASURE_RENAME,
	MEASURE_FLIGHT,
	MEASUREMENTS,
};

struct event_counts {
	__u64 seen;
	__u64 emitted;
	__u64 dropped;
	__u64 suppressed;
};

/* Kept per CPU; a probe's entries minus its exits are the returns that were lost. */
struct cpu_counts {
	__u32 next_sequence;
	__u32 unused;
	struct event_counts events[EVENT_KINDS];
	__u64 entries[MEASUREMENTS];
	__u64 exits[MEASUREMENTS];
};

/* What one thread of the server is in the middle of; a start of 0 means that it is not. */
struct thread {
	__u64 fork_start;
	__u64 fork_flags;
	__u64 fork_child;
	__u64 copy_entered;
	__u64 copy_start;
	__u64 copy_duration;
	__u64 copy_tables;
	__u64 copy_mm;
	__u64 interruption_start;
	__u64 interruption_address;
	__u64 fault_start;
	__u64 fault_address;
	__u64 fault_aux;
	__u32 fault_writes;
	__u32 fault_tables;
	__u64 fault_retried;
	__u64 runnable_since;
	__u64 runnable_reason;
	__u64 blocked_since;
	__u64 blocked_aux;
	__u64 flight_start;
	__u64 flight_tables;
	__u64 sync_reason;
};

/* What a forked child is in the middle of. */
struct child {
	__u64 rename_start;
	__u64 flight_start;
	__u64 flight_tables;
};

#endif

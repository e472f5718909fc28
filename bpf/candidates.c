// SPDX-License-Identifier: Apache-2.0
#include "candidates.h"

const char *const family_names[FAMILIES] = {
    [FAMILY_FEXIT] = "fexit",   [FAMILY_KPROBE] = "kprobe", [FAMILY_TP_BTF] = "tp_btf",
    [FAMILY_RAW_TP] = "raw_tp", [FAMILY_TP] = "tp",
};

#define FEXIT(measured, labelled, function, programs)                                              \
	{                                                                                          \
		.measurement = measured, .family = FAMILY_FEXIT, .where = function,                \
		.label = labelled,                                                                 \
		.attachments = {{programs "_fexit", function, 0},                                  \
				{programs "_fentry", function, 0}},                                \
	}

#define KPROBE(measured, labelled, function, programs, returns)                                    \
	{                                                                                          \
		.measurement = measured, .family = FAMILY_KPROBE, .where = function,               \
		.label = labelled,                                                                 \
		.attachments = {{returns "_kretprobe", function, 0},                               \
				{programs "_kprobe", function, 0}},                                \
	}

#define TRACEPOINT(measured, labelled, attached, family_, tracepoint, ...)                         \
	{                                                                                          \
		.measurement = measured, .family = family_, .where = tracepoint,                   \
		.label = labelled, .lifetime = attached, .attachments = {__VA_ARGS__},             \
	}

static const struct candidate before_symbols[] = {
    FEXIT(MEASURE_FORK, "whole clone", "kernel_clone", "fork"),
    KPROBE(MEASURE_FORK, "whole clone", "kernel_clone", "fork", "fork"),
    KPROBE(MEASURE_FORK, "whole clone", "_do_fork", "fork", "fork"),
    /* Not the whole of clone, but it costs a server nothing until it forks. A raw system-call
     * tracepoint costs one with short queries 13 % for as long as it is attached. */
    {
	.measurement = MEASURE_FORK,
	.family = FAMILY_TP_BTF,
	.where = "percpu_alloc_percpu",
	.label = "clone, from setting up the child's memory to waking the child",
	.fired_by_fork = true,
	.attachments = {{"fork_woken", NULL, 0}, {"fork_memory_enter", NULL, 0}},
    },
    /* Before the tracepoints of single system calls: each of those takes 0.1 s to detach. */
    TRACEPOINT(MEASURE_FORK, "whole system call", ARMED_TO_FORK, FAMILY_RAW_TP, "sys_enter",
	       {"fork_raw_exit", NULL, 0}, {"fork_raw_enter", NULL, 0}),
    TRACEPOINT(MEASURE_FORK, "whole system call", ARMED_TO_FORK, FAMILY_TP,
	       "syscalls/sys_enter_clone", {"fork_syscall_exit", "syscalls/sys_exit_clone", 0},
	       {"fork_syscall_exit", "syscalls/sys_exit_clone3", 0},
	       {"fork_syscall_exit", "syscalls/sys_exit_fork", 0},
	       {"fork_syscall_exit", "syscalls/sys_exit_vfork", 0},
	       {"fork_syscall_enter", "syscalls/sys_enter_clone", 0},
	       {"fork_syscall_enter", "syscalls/sys_enter_clone3", 0},
	       {"fork_syscall_enter", "syscalls/sys_enter_fork", 0},
	       {"fork_syscall_enter", "syscalls/sys_enter_vfork", 0}),

    FEXIT(MEASURE_PAGE_TABLE_COPY, "all VMAs", "dup_mmap", "copy"),
    KPROBE(MEASURE_PAGE_TABLE_COPY, "all VMAs", "dup_mmap", "copy", "copy"),
    FEXIT(MEASURE_PAGE_TABLE_COPY, "sum over the VMAs", "copy_page_range", "copy_range"),
    KPROBE(MEASURE_PAGE_TABLE_COPY, "sum over the VMAs", "copy_page_range", "copy_range", "copy"),
    TRACEPOINT(MEASURE_PAGE_TABLE_COPY, "first to last page-table page allocated", ARMED_TO_FORK,
	       FAMILY_TP_BTF, "mm_page_alloc", {"copy_by_allocation", NULL, 0}),

    FEXIT(MEASURE_FAULT, "write faults", "handle_mm_fault", "fault"),
    KPROBE(MEASURE_FAULT, "write faults", "handle_mm_fault", "fault", "fault"),
    TRACEPOINT(MEASURE_FAULT, "write faults, exception to the kernel's count", ARMED_TO_WINDOW_END,
	       FAMILY_TP_BTF, "page_fault_user", {"fault_counted", NULL, 0},
	       {"fault_user_exception", NULL, 0}, {"fault_kernel_exception", NULL, 0}),
};

static const struct candidate after_symbols[] = {
    TRACEPOINT(MEASURE_INTERRUPTION, "per table", ALWAYS, FAMILY_RAW_TP, "fork_pt_sync_begin",
	       {"interruption_sync_left", NULL, 0}, {"interruption_sync_enter", NULL, 0}),
    {
	.measurement = MEASURE_INTERRUPTION,
	.family = FAMILY_TP_BTF,
	.where = "mm_page_alloc",
	.label = "approximate",
	.lifetime = ARMED_TO_WINDOW_END,
	.within_fault = true,
	.attachments = {{"interruption_by_allocation", NULL, 0}},
    },

    TRACEPOINT(MEASURE_RUN_QUEUE, "runnable to running, and blocked", ARMED_TO_WINDOW_END,
	       FAMILY_TP_BTF, "sched_switch", {"run_queue_switch", NULL, 0},
	       {"run_queue_wakeup", NULL, 0}),
    TRACEPOINT(MEASURE_RUN_QUEUE, "runnable to running, and blocked", ARMED_TO_WINDOW_END,
	       FAMILY_RAW_TP, "sched_switch", {"run_queue_raw_switch", NULL, 0},
	       {"run_queue_raw_wakeup", NULL, 0}),

    TRACEPOINT(MEASURE_WINDOW_END, "SIGCHLD to the server", ALWAYS, FAMILY_TP_BTF,
	       "signal_generate", {"window_end_signal", NULL, 0}),
    TRACEPOINT(MEASURE_WINDOW_END, "the child's exit, on some kernels before its memory is freed",
	       ALWAYS, FAMILY_TP_BTF, "sched_process_exit", {"window_end_exit", NULL, 0}),

    /* Not by the system call's tracepoint: it would slow every system call through the window. */
    FEXIT(MEASURE_RENAME, "the child's renames", "vfs_rename", "rename"),
    KPROBE(MEASURE_RENAME, "the child's renames", "vfs_rename", "rename", "rename"),

    /* Our kernels alone have these tracepoints. Raw, as such a program loads on any kernel. */
    TRACEPOINT(MEASURE_FLIGHT, "fork to the child's last page table", ALWAYS, FAMILY_RAW_TP,
	       "fork_pt_start", {"flight_done", NULL, 0}, {"flight_abort", NULL, 0},
	       {"sync_left", NULL, 0}, {"flight_enter", NULL, 0}, {"sync_enter", NULL, 0}),
};

static void add(struct candidates *candidates, const struct candidate *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		candidates->list[candidates->count++] = list[i];
}

static void add_symbol(struct candidates *candidates, const struct symbol *symbol)
{
	struct candidate both[] = {
	    FEXIT(MEASURE_INTERRUPTION, symbol->label, symbol->name, "interruption"),
	    KPROBE(MEASURE_INTERRUPTION, symbol->label, symbol->name, "interruption",
		   "interruption"),
	};

	both[0].attachments[1].cookie = symbol->address_place;
	both[1].attachments[1].cookie = symbol->address_place;
	add(candidates, both, 2);
}

void candidates_fill(struct candidates *candidates, const struct symbols *symbols)
{
	candidates->count = 0;
	add(candidates, before_symbols, sizeof(before_symbols) / sizeof(*before_symbols));
	for (size_t i = 0; i < symbols->count; i++)
		add_symbol(candidates, &symbols->list[i]);
	add(candidates, after_symbols, sizeof(after_symbols) / sizeof(*after_symbols));
}

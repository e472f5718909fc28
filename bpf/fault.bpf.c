// SPDX-License-Identifier: GPL-2.0-only
/* Write faults of the server inside the window. */
#include "state.bpf.h"
#include <linux/bpf_perf_event.h>

#define ERROR_PRESENT 1
#define ERROR_WRITE 2

static __always_inline void fault_entered(struct thread *thread, __u64 address, bool writes,
					  __u64 aux)
{
	bool again =
	    thread->fault_retried && thread->fault_start && thread->fault_address == address;

	count_entry(MEASURE_FAULT);
	thread->fault_retried = 0;
	if (again)
		return;
	thread->fault_address = address;
	thread->fault_aux = aux;
	thread->fault_writes = writes;
	thread->fault_tables = 0;
	thread->fault_start = bpf_ktime_get_ns();
}

static __always_inline void fault_left(struct cpu_counts *cpu, struct thread *thread, __u64 now)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u64 start = thread->fault_start;

	thread->fault_start = 0;
	count_exit(cpu, MEASURE_FAULT);
	if (thread->fault_tables)
		emit(cpu, EVENT_INTERRUPTION, id, start, now - start, thread->fault_address, 0);
	if (thread->fault_writes)
		emit(cpu, EVENT_FAULT, id, start, now - start, thread->fault_address,
		     thread->fault_aux);
}

/* Up to Linux 6.1 get_user_pages() is told so that a page which was there may be written to. */
static __always_inline __u64 presence_by(__u64 result)
{
	if (!bpf_core_enum_value_exists(enum vm_fault_reason, VM_FAULT_WRITE))
		return 0;
	if (result & bpf_core_enum_value(enum vm_fault_reason, VM_FAULT_WRITE))
		return FAULT_PRESENCE_KNOWN | FAULT_PAGE_PRESENT;
	return FAULT_PRESENCE_KNOWN;
}

static __always_inline void handler_entered(__u64 address, unsigned int flags)
{
	struct thread *thread;

	if (!gate_open)
		return;
	thread = server_thread();
	if (!thread)
		return;
	if (flags & bpf_core_enum_value(enum fault_flag, FAULT_FLAG_WRITE))
		fault_entered(thread, address, true, 0);
	else
		/* A write fault whose return was lost must not end with the return of this one. */
		thread->fault_start = 0;
}

static __always_inline void handler_left(__u64 result)
{
	__u64 now = bpf_ktime_get_ns();
	struct thread *thread = server_thread();
	struct cpu_counts *cpu;

	if (!thread || !thread->fault_start || thread->fault_retried)
		return;
	cpu = this_cpu();
	if (!cpu)
		return;
	/* The lock was dropped and the fault will come again: it began when it first came. */
	if (result & bpf_core_enum_value(enum vm_fault_reason, VM_FAULT_RETRY)) {
		thread->fault_retried = 1;
		count_exit(cpu, MEASURE_FAULT);
		return;
	}
	thread->fault_aux = presence_by(result);
	fault_left(cpu, thread, now);
}

SEC("fentry/handle_mm_fault")
int BPF_PROG(fault_fentry, void *vma, unsigned long address, unsigned int flags)
{
	handler_entered(address, flags);
	return 0;
}

SEC("fexit/handle_mm_fault")
int BPF_PROG(fault_fexit, void *vma, unsigned long address, unsigned int flags, void *regs,
	     unsigned int result)
{
	handler_left(result);
	return 0;
}

SEC("kprobe")
int BPF_KPROBE(fault_kprobe, void *vma, unsigned long address, unsigned int flags)
{
	handler_entered(address, flags);
	return 0;
}

SEC("kretprobe")
int BPF_KRETPROBE(fault_kretprobe, unsigned int result)
{
	handler_left(result);
	return 0;
}

static __always_inline struct thread *exception_entered(__u64 address, __u64 error)
{
	struct thread *thread;

	/* A kernel address is an exception-table fix-up and never completes as a user's fault. */
	if (!gate_open || address >> 63)
		return NULL;
	thread = server_thread();
	if (thread)
		fault_entered(thread, address, error & ERROR_WRITE,
			      FAULT_PRESENCE_KNOWN |
				  (error & ERROR_PRESENT ? FAULT_PAGE_PRESENT : 0));
	return thread;
}

SEC("tp_btf/page_fault_user")
int BPF_PROG(fault_user_exception, unsigned long address, void *regs, unsigned long error)
{
	struct thread *thread = exception_entered(address, error);

	/* It runs its own code, so a fork that began has failed. */
	if (thread)
		thread->fork_start = 0;
	return 0;
}

SEC("tp_btf/page_fault_kernel")
int BPF_PROG(fault_kernel_exception, unsigned long address, void *regs, unsigned long error)
{
	exception_entered(address, error);
	return 0;
}

/* The kernel counts a fault, minor or major, once it is complete. */
SEC("perf_event")
int fault_counted(struct bpf_perf_event_data *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	struct thread *thread = server_thread();
	struct cpu_counts *cpu = this_cpu();

	if (cpu && thread && thread->fault_start && thread->fault_address == ctx->addr)
		fault_left(cpu, thread, now);
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only
/* The page-table copy: inside fork it is part of the fork, outside it interrupts the server. */
#include "interruption.bpf.h"

static __always_inline struct thread *forking_thread(void)
{
	struct thread *thread = server_thread();

	return thread && thread->fork_start ? thread : NULL;
}

static __always_inline void copy_entered(void)
{
	struct thread *thread = forking_thread();

	if (!thread)
		return;
	thread->copy_entered = bpf_ktime_get_ns();
	if (!thread->copy_start)
		thread->copy_start = thread->copy_entered;
	count_entry(MEASURE_PAGE_TABLE_COPY);
}

/* copy_page_range comes once for each VMA: the copy is the sum. */
static __always_inline struct thread *copy_left(void)
{
	__u64 now = bpf_ktime_get_ns();
	struct thread *thread = forking_thread();
	struct cpu_counts *cpu = this_cpu();

	if (!cpu || !thread || !thread->copy_entered)
		return NULL;
	thread->copy_duration += now - thread->copy_entered;
	thread->copy_entered = 0;
	count_exit(cpu, MEASURE_PAGE_TABLE_COPY);
	return thread;
}

static __always_inline void count_tables(struct thread *thread, struct mm_struct *mm)
{
	thread->copy_tables = (__u64)BPF_CORE_READ(mm, pgtables_bytes.counter) / PAGE_BYTES;
}

SEC("fentry/dup_mmap")
int copy_fentry(void *ctx)
{
	copy_entered();
	return 0;
}

SEC("fexit/dup_mmap")
int BPF_PROG(copy_fexit, struct mm_struct *mm)
{
	struct thread *thread = copy_left();

	if (thread)
		count_tables(thread, mm);
	return 0;
}

SEC("kprobe")
int BPF_KPROBE(copy_kprobe, struct mm_struct *mm)
{
	struct thread *thread = forking_thread();

	if (thread)
		thread->copy_mm = (__u64)mm;
	copy_entered();
	return 0;
}

SEC("kretprobe")
int copy_kretprobe(void *ctx)
{
	struct thread *thread = copy_left();

	if (thread)
		count_tables(thread, (struct mm_struct *)thread->copy_mm);
	return 0;
}

SEC("fentry/copy_page_range")
int copy_range_fentry(void *ctx)
{
	copy_entered();
	return 0;
}

SEC("fexit/copy_page_range")
int BPF_PROG(copy_range_fexit, struct vm_area_struct *child_vma)
{
	struct thread *thread = copy_left();

	if (thread)
		count_tables(thread, BPF_CORE_READ(child_vma, vm_mm));
	return 0;
}

SEC("kprobe")
int BPF_KPROBE(copy_range_kprobe, struct vm_area_struct *child_vma)
{
	struct thread *thread = forking_thread();

	if (thread)
		thread->copy_mm = (__u64)BPF_CORE_READ(child_vma, vm_mm);
	copy_entered();
	return 0;
}

/* Page tables are zeroed, accounted and never movable; a process's data pages are movable. */
static __always_inline bool is_page_table(unsigned int order, unsigned int gfp)
{
	return !order && (gfp & page_table_gfp_set) == page_table_gfp_set &&
	       !(gfp & page_table_gfp_clear);
}

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(copy_by_allocation, void *page, unsigned int order, unsigned int gfp)
{
	struct thread *thread;
	__u64 now;

	if (!is_page_table(order, gfp))
		return 0;
	thread = forking_thread();
	if (!thread)
		return 0;
	now = bpf_ktime_get_ns();
	if (!thread->copy_start)
		thread->copy_start = now;
	thread->copy_duration = now - thread->copy_start;
	thread->copy_tables++;
	return 0;
}

SEC("tp_btf/mm_page_alloc")
int BPF_PROG(interruption_by_allocation, void *page, unsigned int order, unsigned int gfp)
{
	struct thread *thread;

	if (!is_page_table(order, gfp))
		return 0;
	thread = server_thread();
	if (thread && thread->fault_start && !thread->fork_start)
		thread->fault_tables++;
	return 0;
}

/* Target and cookie come from the list of symbols: the cookie is the address argument's place,
 * counted from 1, or 0 where the function takes none. */
SEC("fentry")
int interruption_fentry(void *ctx)
{
	__u64 place = bpf_get_attach_cookie(ctx);
	__u64 address = 0;

	if (place)
		bpf_get_func_arg(ctx, (__u32)place - 1, &address);
	interruption_entered(address);
	return 0;
}

SEC("fexit")
int interruption_fexit(void *ctx)
{
	interruption_left(0);
	return 0;
}

SEC("kprobe")
int interruption_kprobe(struct pt_regs *ctx)
{
	__u64 place = bpf_get_attach_cookie(ctx);
	__u64 offset, address = 0;

	switch (place) {
	case 1:
		offset = __builtin_offsetof(struct pt_regs, __PT_PARM1_REG);
		break;
	case 2:
		offset = __builtin_offsetof(struct pt_regs, __PT_PARM2_REG);
		break;
	case 3:
		offset = __builtin_offsetof(struct pt_regs, __PT_PARM3_REG);
		break;
	case 4:
		offset = __builtin_offsetof(struct pt_regs, __PT_PARM4_REG);
		break;
	default:
		offset = __builtin_offsetof(struct pt_regs, __PT_PARM5_REG);
	}
	/* The verifier refuses a load from the context at an offset that varies; the helper does
	 * not. */
	if (place)
		bpf_probe_read_kernel(&address, sizeof(address), (void *)ctx + offset);
	interruption_entered(address);
	return 0;
}

SEC("kretprobe")
int interruption_kretprobe(void *ctx)
{
	interruption_left(0);
	return 0;
}

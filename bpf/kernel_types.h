/* SPDX-License-Identifier: GPL-2.0-only */
/* The few kernel fields that the programs read. CO-RE finds their real offsets at load time, so
 * that building needs no BTF of the build host. */
#ifndef FORKTAIL_KERNEL_TYPES_H
#define FORKTAIL_KERNEL_TYPES_H

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

typedef struct {
	__s64 counter;
} atomic64_t;

struct mm_struct {
	atomic64_t pgtables_bytes;
};

struct vm_area_struct {
	struct mm_struct *vm_mm;
};

struct task_struct {
	int pid;
	int tgid;
	int exit_code;
	unsigned in_iowait : 1;
};

struct kernel_siginfo {
	int si_code;
};

#pragma clang attribute pop

enum fault_flag {
	FAULT_FLAG_WRITE = 1,
};

enum vm_fault_reason {
	VM_FAULT_WRITE = 0x8,
	VM_FAULT_RETRY = 0x400,
};

#endif

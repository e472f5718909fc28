// SPDX-License-Identifier: Apache-2.0
/*
 * A process whose memory something else maps too, and is notified of changes: a virtual machine of
 * KVM. Of what that writes a child sees nothing, and fork() leaves no table uncopied, for it would
 * go on writing below it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/kvm.h>
#include <sys/ioctl.h>

#include "family.h"
#include "flight.h"
#include "pages.h"
#include "traced.h"

#define TABLES 24
#define GUEST (7 * 512UL + 20)
#define GUEST_PAGES 8

static struct pages pages;
static int kvm;

struct machine {
	int vm;
	int cpu;
	struct kvm_run *run;
};

/* Its memory is some pages of the process; its program is the first of these. */
static struct machine make_machine(void)
{
	struct machine machine = {.vm = ioctl(kvm, KVM_CREATE_VM, 0UL)};
	struct kvm_userspace_memory_region memory = {
	    .memory_size = GUEST_PAGES * PAGE,
	    .userspace_addr = (uintptr_t)pages.base + GUEST * PAGE,
	};

	if (machine.vm < 0 || ioctl(machine.vm, KVM_SET_USER_MEMORY_REGION, &memory))
		tap_bail_out("KVM: %s", strerror(errno));
	machine.cpu = ioctl(machine.vm, KVM_CREATE_VCPU, 0UL);
	machine.run = mmap(NULL, ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0UL), PROT_READ | PROT_WRITE,
			   MAP_SHARED, machine.cpu, 0);
	if (machine.cpu < 0 || machine.run == MAP_FAILED)
		tap_bail_out("KVM: %s", strerror(errno));
	return machine;
}

/* It writes a byte into its second page, and halts. */
static void run_machine(const struct machine *machine, uint8_t byte)
{
	const uint8_t program[] = {0xc6, 0x06, 0x00, 0x10, byte, 0xf4};
	struct kvm_regs registers = {.rip = 0x100, .rflags = 2};
	struct kvm_sregs segments;

	memcpy(pages.base + GUEST * PAGE + 0x100, program, sizeof(program));
	ioctl(machine->cpu, KVM_GET_SREGS, &segments);
	segments.cs.base = 0;
	segments.cs.selector = 0;
	if (ioctl(machine->cpu, KVM_SET_SREGS, &segments) ||
	    ioctl(machine->cpu, KVM_SET_REGS, &registers) || ioctl(machine->cpu, KVM_RUN, 0UL) ||
	    machine->run->exit_reason != KVM_EXIT_HLT)
		tap_bail_out("KVM ran to %u: %s", machine->run->exit_reason, strerror(errno));
}

static uint8_t written(void)
{
	return *(volatile uint8_t *)(pages.base + (GUEST + 1) * PAGE);
}

static struct child fork_checker(void)
{
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		_exit(!pages_intact(&pages));
	}
	return child;
}

static void unmake_machine(struct machine *machine)
{
	munmap(machine->run, ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0UL));
	close(machine->cpu);
	close(machine->vm);
}

static bool begun_after_fork(bool hold)
{
	bool good = true;

	if (hold)
		flight_hold(FLIGHT_ALL);
	struct child child = fork_checker();

	if (hold)
		flight_await_hold();
	struct machine machine = make_machine();

	if (hold && flight_get("marked")) {
		tap_note("%ld tables are uncopied when KVM is notified", flight_get("marked"));
		good = false;
	}
	run_machine(&machine, 0x5a);
	good = written() == 0x5a && good;
	if (hold)
		flight_release();
	good = family_join(&child) && good;
	pages_write(&pages, GUEST);
	pages_write(&pages, GUEST + 1);
	unmake_machine(&machine);
	return good && pages_intact(&pages);
}

/* Each in a process of its own: the kernel does not forget that one was notified. */
static bool in_new_process(bool (*run)(bool), bool hold)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0)
		_exit(!run(hold));
	waitpid(pid, &status, 0);
	return status == 0;
}

static bool begun_before_fork(bool hold)
{
	struct machine machine = make_machine();
	bool good;

	(void)hold;
	run_machine(&machine, 0);
	pages_write(&pages, GUEST);
	pages_write(&pages, GUEST + 1);
	traced_begin();
	struct child child = fork_checker();

	for (int byte = 0xa0; byte < 0xa8; byte++)
		run_machine(&machine, byte);
	good = written() == 0xa7;
	good = family_join(&child) && good;
	long copied = traced_copied();

	if (copied < TABLES) {
		tap_note("fork() copied %ld tables", copied);
		good = false;
	}
	pages_write(&pages, GUEST);
	pages_write(&pages, GUEST + 1);
	unmake_machine(&machine);
	return good && pages_intact(&pages);
}

int main(void)
{
	kvm = open("/dev/kvm", O_RDWR);
	if (kvm < 0) {
		tap_skip("notifiers", "this kernel has no /dev/kvm, nor another to be notified");
		return tap_done();
	}
	pages = pages_make(TABLES);
	tap_ok(in_new_process(begun_before_fork, false),
	       "a process with a virtual machine is copied at once, and keeps what that writes");
	tap_ok(in_new_process(begun_after_fork, false), "so does one that begins it after fork()");
	if (access(FLIGHT_DEBUG "stat", R_OK) == 0 && flight_threads())
		tap_ok(in_new_process(begun_after_fork, true),
		       "which copies what is uncopied by then");
	return tap_done();
}

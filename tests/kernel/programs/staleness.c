// SPDX-License-Identifier: Apache-2.0
/*
 * The leak of Table 1 of the Async-fork paper: while a child reads a page, which its TLB has, the
 * page is moved elsewhere by way of the parent, and its frame is given to somebody else. The child
 * must go on to see the page. With odf.rmap=published, as in the published kernels, it sees the
 * stranger's.
 */
#define _GNU_SOURCE
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>

#include "family.h"
#include "knobs.h"
#include "pages.h"

#define ROUNDS 6
#define WATCHED 4
#define FIRST_WATCHED 300
#define REFILL 4096UL
#define FOREIGN 0xf0e1f0e1f0e1f0e1UL

/* What the child writes without a system call. */
struct report {
	_Atomic uint64_t loops;
	_Atomic uint64_t foreign;
	_Atomic uint64_t other;
	atomic_bool stop;
};

static void stay_on_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		tap_bail_out("sched_setaffinity: %s", strerror(errno));
}

static bool prefer_node(int node)
{
	unsigned long nodes = 1UL << node;

	return node < 0 ? !syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0)
			: !syscall(SYS_set_mempolicy, MPOL_BIND, &nodes, 8 * sizeof(nodes));
}

static void watch(const struct pages *pages, struct report *report)
{
	const volatile uint64_t *words[WATCHED];
	uint64_t stamps[WATCHED];

	for (int i = 0; i < WATCHED; i++) {
		size_t index = FIRST_WATCHED + 13 * i;

		words[i] = (const volatile uint64_t *)(pages->base + index * PAGE);
		stamps[i] = pages->stamps[index];
	}
	while (!atomic_load_explicit(&report->stop, memory_order_relaxed)) {
		for (int i = 0; i < WATCHED; i++) {
			uint64_t word = *words[i];

			if (word == FOREIGN)
				atomic_fetch_add(&report->foreign, 1);
			else if (word != stamps[i])
				atomic_fetch_add(&report->other, 1);
		}
		atomic_fetch_add(&report->loops, 1);
	}
}

/* The frame of the first page that is watched; looking it up does not touch the table. */
static uint64_t frame(const struct pages *pages)
{
	uintptr_t address = (uintptr_t)(pages->base + FIRST_WATCHED * PAGE);
	int file = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entry = 0;

	if (pread(file, &entry, 8, address / PAGE * 8) != 8)
		tap_bail_out("pagemap: %s", strerror(errno));
	close(file);
	return entry & ((1UL << 55) - 1);
}

static void wait_for_loops(struct report *report, uint64_t loops)
{
	uint64_t end = atomic_load(&report->loops) + loops;

	for (int i = 0; i < 5000 && atomic_load(&report->loops) < end; i++)
		usleep(1000);
}

/* Move everything from one node to the other, and write to all frames that are free there then. */
static bool move(const struct pages *pages, int from, struct report *report)
{
	unsigned long old = 1UL << from;
	unsigned long new = 1UL << !from;
	uint64_t before = frame(pages);

	syscall(SYS_migrate_pages, 0, 8 * sizeof(old), &old, &new);
	bool moved = frame(pages) != before;

	prefer_node(from);
	char *refill = pages_map(NULL, REFILL * PAGE);

	madvise(refill, REFILL * PAGE, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < REFILL; i++)
		*(uint64_t *)(refill + i * PAGE) = FOREIGN;
	wait_for_loops(report, 10000);
	munmap(refill, REFILL * PAGE);
	prefer_node(-1);
	return moved;
}

static void test(const char *mode)
{
	struct report *report =
	    mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int moves = 0;

	knobs_set_rmap(mode);
	prefer_node(0);
	struct pages pages = pages_make(2);

	prefer_node(-1);
	struct child child = family_fork();

	if (child.pid == 0) {
		stay_on_cpu(1);
		watch(&pages, report);
		_exit(0);
	}
	wait_for_loops(report, 10000);
	for (int i = 0; i < ROUNDS; i++)
		moves += move(&pages, i % 2, report);
	atomic_store(&report->stop, true);
	bool well = family_join(&child) && pages_intact(&pages);
	uint64_t foreign = atomic_load(&report->foreign);

	tap_note("odf.rmap=%s: moved %d times of %d; the child read foreign words %lu times in %lu "
		 "loops",
		 *mode ? mode : "(none)", moves, ROUNDS, foreign, atomic_load(&report->loops));
	if (strcmp(mode, "refuse") == 0)
		tap_ok(moves == 0, "refuse: no page below a shared table moves");
	else
		tap_ok(moves > 0, "%s: the page moves", *mode ? mode : "not shared");
	if (strcmp(mode, "published") == 0) {
		/* A switch of tasks in between flushes an emulated TLB, and then there is nothing
		 * to see. */
		if (foreign > 0)
			tap_ok(true, "published: the child reads what is not its own");
		else
			tap_skip("published: the child reads what is not its own",
				 "not seen this time");
	} else {
		tap_ok(foreign == 0 && atomic_load(&report->other) == 0,
		       "%s: the child reads nothing that is not its own",
		       *mode ? mode : "not shared");
	}
	tap_ok(well, "%s: the parent's memory is as it was", *mode ? mode : "not shared");
	pages_unmake(&pages);
	munmap(report, PAGE);
}

int main(void)
{
	const char *const *mode = knobs_rmap_modes();

	if (!prefer_node(1)) {
		tap_skip("moving pages", "there is only one node");
		return tap_done();
	}
	prefer_node(-1);
	stay_on_cpu(0);
	for (; *mode; mode++)
		test(*mode);
	if (access(RMAP, F_OK) == 0)
		knobs_set_rmap("refuse");
	return tap_done();
}

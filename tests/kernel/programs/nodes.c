// SPDX-License-Identifier: Apache-2.0
/*
 * NUMA balancing takes away the access to pages, to learn by the faults who uses them: fork() when
 * it has just done so, and these faults, and pages moved from node to node, while tables are
 * uncopied.
 */
#define _GNU_SOURCE
#include <linux/mempolicy.h>
#include <sys/syscall.h>

#include "family.h"
#include "pages.h"
#include "scanned.h"

#define TABLES 24
#define SCAN_SECONDS 120

static void read_backwards(struct pages *pages)
{
	for (size_t index = pages->count; index--;)
		if (*(volatile uint64_t *)(pages->base + index * PAGE) != pages->stamps[index])
			tap_bail_out("the parent reads what it has not written");
}

static void write_some(struct pages *pages)
{
	pages_write_random(pages, 200);
}

static void bind(struct pages *pages)
{
	for (unsigned long nodes = 2; nodes; nodes--)
		if (syscall(SYS_mbind, pages->base, pages->count * PAGE, MPOL_BIND, &nodes,
			    8 * sizeof(nodes), MPOL_MF_MOVE_ALL) < 0 &&
		    errno != EIO)
			tap_bail_out("mbind: %s", strerror(errno));
	syscall(SYS_mbind, pages->base, pages->count * PAGE, MPOL_DEFAULT, NULL, 0, 0);
	pages_write_random(pages, 40);
}

static void move_some(struct pages *pages)
{
	void *addresses[256];
	int nodes[256];
	int status[256];

	for (size_t i = 0; i < 256; i++) {
		addresses[i] = pages->base + i * (pages->count / 256) * PAGE;
		nodes[i] = i % 2;
	}
	syscall(SYS_move_pages, 0, 256UL, addresses, nodes, status, MPOL_MF_MOVE_ALL);
	pages_write_random(pages, 40);
}

static void migrate(struct pages *pages)
{
	for (unsigned long to = 2; to; to--) {
		unsigned long from = 3 ^ to;

		syscall(SYS_migrate_pages, 0, 8 * sizeof(from), &from, &to);
	}
	pages_write_random(pages, 40);
}

static const struct operation {
	const char *name;
	void (*run)(struct pages *pages);
} operations[] = {
    {"reading backwards", read_backwards},
    {"writing here and there", write_some},
    {"mbind to and fro", bind},
    {"move_pages", move_some},
    {"migrate_pages to and fro", migrate},
};

static void test(struct pages *pages, const struct operation *operation)
{
	long faults = counters_read("/proc/vmstat", "numa_hint_faults");
	bool scanned = scanned_await(TABLES * 512 / 2, SCAN_SECONDS);
	struct child child = family_fork();

	if (child.pid == 0) {
		bool good = pages_intact(pages);

		pages_write_random(pages, 200);
		_exit(!(pages_intact(pages) && good));
	}
	operation->run(pages);
	bool good = pages_intact(pages);

	good = family_join(&child) && good;
	good = pages_intact(pages) && good;
	faults = counters_read("/proc/vmstat", "numa_hint_faults") - faults;
	tap_ok(good && scanned && faults > 0, "%s after a fork() of scanned pages: %ld hint faults",
	       operation->name, faults);
}

int main(void)
{
	if (!scanned_possible()) {
		tap_skip("NUMA balancing", "there is none, or only one node");
		return tap_done();
	}
	struct pages pages = pages_make(TABLES);

	scanned_begin();
	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++)
		test(&pages, &operations[i]);
	scanned_end();
	tap_ok(pages_intact(&pages), "the memory is as it was");
	return tap_done();
}

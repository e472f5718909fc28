// SPDX-License-Identifier: Apache-2.0
/*
 * Async-fork, with the child stopped before it has copied all: whatever the parent does to its
 * memory then, the child has what was there at the fork. The operations are those of snapshot.c.
 */
#define main snapshot_main
#include "snapshot.c"
#undef main

#include "flight.h"

/* In a process of its own, for some operations have consequences for the forks after them. */
static bool holds_when_held(const struct operation *operation, long left, bool swapped)
{
	pid_t pid = fork();
	int status = -1;

	if (pid) {
		waitpid(pid, &status, 0);
		flight_release();
		return status == 0;
	}
	struct pages pages = pages_make(TABLES);

	if (swapped)
		madvise(pages.base + 600 * PAGE, 900 * PAGE, MADV_PAGEOUT);
	flight_hold(left);
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		bool good = pages_intact(&pages);

		pages_write_random(&pages, 40);
		_exit(!(pages_intact(&pages) && good));
	}
	flight_await_hold();
	operation->run(&pages);
	bool good = pages_intact(&pages);

	flight_release();
	good = family_join(&child) && good;
	good = pages_intact(&pages) && good;
	pages_write_all(&pages);
	_exit(!(pages_intact(&pages) && good));
}

static void compact(struct pages *pages)
{
	int file = open("/proc/sys/vm/compact_memory", O_WRONLY);

	if (write(file, "1", 1) != 1)
		tap_note("compact_memory: %s", strerror(errno));
	close(file);
	pages_write_random(pages, 5);
}

static void only_relocate(struct pages *pages)
{
	unsigned long from = 3;
	unsigned long to = 2;

	madvise(pages->base, pages->count * PAGE, MADV_PAGEOUT);
	syscall(SYS_migrate_pages, 0, 8 * sizeof(from), &from, &to);
}

static void do_nothing(struct pages *pages)
{
	(void)pages;
}

static void read_all(struct pages *pages)
{
	if (!pages_intact(pages))
		tap_bail_out("the parent reads what it has not written");
}

static const struct operation more_operations[] = {
    {"nothing", do_nothing},
    {"reading everything", read_all},
    {"compaction", compact},
    {"swapping and migrating, and no writing", only_relocate},
};

static void all_ways(const struct operation *operation)
{
	tap_ok(holds_when_held(operation, FLIGHT_ALL, false), "%s, nothing copied",
	       operation->name);
	tap_ok(holds_when_held(operation, 2, false), "%s, but for two tables all copied",
	       operation->name);
	tap_ok(holds_when_held(operation, FLIGHT_ALL, true),
	       "%s, nothing copied, partly swapped out", operation->name);
}

int main(void)
{
	if (!flight_possible("the parent's operations while the child is held"))
		return tap_done();
	long before = flight_count("flights");

	for (size_t i = 0; i < sizeof(more_operations) / sizeof(*more_operations); i++)
		all_ways(&more_operations[i]);
	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++)
		/* It would wait for another child that is held. */
		if (operations[i].run != fork_again)
			all_ways(&operations[i]);
	tap_ok(flight_count("flights") - before >= tap_count, "each of them met a flight");
	tap_ok(flight_all_over(), "no table remains uncopied");
	return tap_done();
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Async-fork, with the child stopped before it has copied all: whatever the parent does to its
 * memory then, the child has what was there at the fork. The operations are those of snapshot.c.
 */
#define main snapshot_main
#include "snapshot.c"
#undef main

#include "flight.h"
#include "knobs.h"
#include "ring.h"
#include "scanned.h"

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

static void map_over(struct pages *pages)
{
	pages_map(pages->base + 700 * PAGE, 900 * PAGE);
	madvise(pages->base + 700 * PAGE, 900 * PAGE, MADV_NOHUGEPAGE);
	pages_forget(pages, 700, 900);
	pages_write_random(pages, 40);
}

static void move_and_leave(struct pages *pages)
{
	char *to = pages_map(NULL, 700 * PAGE);

	if (mremap(pages->base + 600 * PAGE, 700 * PAGE, 700 * PAGE,
		   MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) != to)
		tap_bail_out("mremap: %s", strerror(errno));
	munmap(to, 700 * PAGE);
	pages_forget(pages, 600, 700);
	pages_write_random(pages, 40);
}

static void will_need(struct pages *pages)
{
	madvise(pages->base, pages->count * PAGE, MADV_WILLNEED);
	madvise(pages->base, pages->count * PAGE, MADV_POPULATE_READ);
	pages_write_random(pages, 5);
	madvise(pages->base + 600 * PAGE, 700 * PAGE, MADV_POPULATE_WRITE);
}

static void take_offline(struct pages *pages)
{
	if (madvise(pages->base + 777 * PAGE, PAGE, 101 /* MADV_SOFT_OFFLINE */))
		tap_note("MADV_SOFT_OFFLINE: %s", strerror(errno));
	pages_write_random(pages, 5);
}

static void be_scanned(struct pages *pages)
{
	if (!scanned_possible()) {
		tap_note("there is no NUMA balancing");
		return;
	}
	/* What is uncopied the kernel passes over, so it may find little. */
	scanned_begin();
	pages_write(pages, 20 + 512);
	if (!scanned_await(100, 10))
		tap_note("little was scanned");
	if (!pages_intact(pages))
		tap_bail_out("the parent reads what it has not written");
	scanned_end();
	pages_write_random(pages, 5);
}

/* Into a buffer that is pinned for as long as the ring is there. */
static void read_by_ring(struct pages *pages)
{
	static char expected[PAGE] __attribute__((aligned(4096)));
	char *page = pages->base + 1300 * PAGE;
	int disk = open(DISK, O_RDONLY | O_DIRECT);
	struct ring ring = ring_make(page, PAGE);

	ring_read(&ring, disk, page, PAGE);
	if (ring_wait(&ring) != (int)PAGE || pread(disk, expected, PAGE, 0) != (ssize_t)PAGE ||
	    memcmp(page, expected, PAGE))
		tap_bail_out("io_uring does not read %s as it is: %s", DISK, strerror(errno));
	pages_write(pages, 1300);
	ring_unmake(&ring);
	close(disk);
}

static const struct operation more_operations[] = {
    {"nothing", do_nothing},
    {"reading everything", read_all},
    {"compaction", compact},
    {"swapping and migrating, and no writing", only_relocate},
    {"mmap over", map_over},
    {"MREMAP_DONTUNMAP", move_and_leave},
    {"MADV_WILLNEED and MADV_POPULATE", will_need},
    {"MADV_SOFT_OFFLINE", take_offline},
    {"NUMA balancing", be_scanned},
    {"io_uring with a fixed buffer", read_by_ring},
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

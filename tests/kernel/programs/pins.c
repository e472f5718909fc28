// SPDX-License-Identifier: Apache-2.0
/*
 * A process that has pinned pages, as buffers of io_uring are, and forks: it keeps these pages, and
 * what a device writes to them from then on is its own. The child has what was there at the fork.
 * So fork() has to copy everything at once, whatever it was asked for.
 */
#define _GNU_SOURCE
#include "family.h"
#include "pages.h"
#include "ring.h"
#include "traced.h"

#define TABLES 24
#define DISK "/dev/vda"
#define PINNED (5 * 512UL + 77)

static struct pages pages;

static struct child fork_checker(void)
{
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		bool good = pages_intact(&pages);

		/* And nobody else gets what it writes. */
		pages_write_all(&pages);
		_exit(!(pages_intact(&pages) && good));
	}
	return child;
}

static long copied_by_fork(bool *good)
{
	traced_begin();
	struct child child = fork_checker();

	*good = family_join(&child) && pages_intact(&pages) && *good;
	return traced_copied();
}

static void nothing_pinned(void)
{
	bool good = true;
	long copied = copied_by_fork(&good);

	if (traced_lazily())
		tap_ok(good && copied < TABLES,
		       "with nothing pinned fork() copies %ld tables of %d", copied, TABLES);
	else
		tap_ok(good && copied >= TABLES, "fork() copies all tables: %ld", copied);
}

static void write_to_pipe(int end, uint64_t stamp)
{
	uint64_t words[PAGE / 8] = {stamp};

	words[PAGE / 8 - 1] = ~stamp;
	if (write(end, words, PAGE) != (ssize_t)PAGE)
		tap_bail_out("a pipe does not take a page: %s", strerror(errno));
}

/* The read begins before fork() and ends after it; the parent writes to the page in between. */
static void read_across_fork(void)
{
	uint64_t *words = (uint64_t *)(pages.base + PINNED * PAGE);
	uint64_t stamp = 1UL << 42;
	bool good = true;
	int ends[2];

	if (pipe(ends))
		tap_bail_out("pipe: %s", strerror(errno));
	struct ring ring = ring_make(words, PAGE);

	ring_read(&ring, ends[0], words, PAGE);
	traced_begin();
	struct child child = fork_checker();

	words[100] = 4711;
	write_to_pipe(ends[1], stamp);
	good = ring_wait(&ring) == (int)PAGE;
	good = good && words[0] == stamp && words[PAGE / 8 - 1] == ~stamp && words[100] == 0;
	tap_ok(good, "a read that began before fork() goes to the parent's page");
	pages.stamps[PINNED] = stamp;
	good = pages_intact(&pages);
	tap_ok(family_join(&child) && good, "and not to the child's");
	long copied = traced_copied();

	tap_ok(copied >= TABLES, "fork() of a process with a pinned page copies all tables: %ld",
	       copied);
	words[100] = 0;
	ring_unmake(&ring);
	close(ends[0]);
	close(ends[1]);
}

static void forks_after_it(void)
{
	bool good = true;
	long copied = copied_by_fork(&good);

	tap_ok(good && copied >= TABLES, "so does each fork() after the page is unpinned: %ld",
	       copied);
	struct child child = family_fork();

	if (child.pid == 0) {
		copied = copied_by_fork(&good);
		_exit(!(good && (copied < TABLES) == traced_lazily()));
	}
	tap_ok(family_join(&child), "its child has pinned nothing, and forks as it was told");
}

/* In a process that has pinned nothing yet, so that its fork() may leave tables uncopied. */
static bool in_new_process(bool (*run)(void))
{
	struct child child = family_fork();

	if (child.pid == 0)
		_exit(!run());
	return family_join(&child);
}

static bool pin_at_once(void)
{
	uint64_t stamp = 1UL << 43;
	int ends[2];

	if (pipe(ends))
		tap_bail_out("pipe: %s", strerror(errno));
	pages_write_all(&pages);
	struct child child = fork_checker();
	struct ring ring = ring_make(pages.base, pages.count * PAGE);
	bool good = true;

	for (size_t i = 1; i <= TABLES; i++) {
		/* The tables that are copied last first. */
		size_t index = (TABLES - i) * 512 + 100;

		write_to_pipe(ends[1], stamp + i);
		ring_read(&ring, ends[0], pages.base + index * PAGE, PAGE);
		good = ring_wait(&ring) == (int)PAGE && good;
		pages.stamps[index] = stamp + i;
	}
	good = pages_intact(&pages) && good;
	struct child second = fork_checker();

	good = family_join(&child) && good;
	good = family_join(&second) && pages_intact(&pages) && good;
	ring_unmake(&ring);
	return good;
}

static bool read_disk_at_once(void)
{
	static char expected[PAGE] __attribute__((aligned(4096)));
	int disk = open(DISK, O_RDONLY | O_DIRECT);
	bool good = true;

	if (pread(disk, expected, PAGE, 0) != (ssize_t)PAGE)
		tap_bail_out("%s: %s", DISK, strerror(errno));
	for (int round = 0; round < 10; round++) {
		pages_write_all(&pages);
		struct child child = fork_checker();

		for (size_t i = 1; i <= TABLES; i++) {
			char *page = pages.base + ((TABLES - i) * 512 + 40 * round) * PAGE;

			good = pread(disk, page, PAGE, 0) == (ssize_t)PAGE &&
			       memcmp(page, expected, PAGE) == 0 && good;
		}
		good = family_join(&child) && good;
	}
	close(disk);
	return good;
}

int main(void)
{
	pages = pages_make(TABLES);
	tap_ok(in_new_process(pin_at_once),
	       "everything pinned right after fork(), and read into, is the parent's alone");
	if (access(DISK, R_OK))
		tap_skip("O_DIRECT right after fork()", "there is no disk");
	else
		tap_ok(in_new_process(read_disk_at_once),
		       "so is what O_DIRECT reads right after fork()");
	nothing_pinned();
	read_across_fork();
	forks_after_it();
	tap_ok(pages_intact(&pages), "the memory is as it was");
	return tap_done();
}

// SPDX-License-Identifier: Apache-2.0
/* What fork() promises: the child has the memory of the fork, neither sees the other's writes,
 * either may end any time. */
#define _GNU_SOURCE

#include "family.h"
#include "pages.h"

#define TABLES 4

static struct pages pages;

static void child_keeps_the_memory_of_the_fork(void)
{
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		_exit(!pages_intact(&pages));
	}
	pages_write_all(&pages);
	tap_ok(family_join(&child), "the child keeps the memory of the fork");
}

static void parent_does_not_see_the_childs_writes(void)
{
	struct child child = family_fork();

	if (child.pid == 0) {
		pages_write_all(&pages);
		_exit(!pages_intact(&pages));
	}
	bool well = family_join(&child);

	tap_ok(well && pages_intact(&pages), "the parent does not see the child's writes");
}

static void generations(int depth)
{
	struct child child = family_fork();

	if (child.pid == 0) {
		bool good = pages_intact(&pages);

		pages_write_random(&pages, 30);
		if (depth > 1)
			generations(depth - 1);
		good = pages_intact(&pages) && good && tap_failures == 0;
		_exit(!good);
	}
	pages_write_random(&pages, 30);
	bool good = pages_intact(&pages);

	good = family_join(&child) && good;
	tap_failures += !(pages_intact(&pages) && good);
}

static void descendants(void)
{
	int failures = tap_failures;

	generations(6);
	bool good = tap_failures == failures;

	tap_failures = failures;
	tap_ok(good, "six generations each have their own memory");
}

static void siblings(void)
{
	struct child children[8];
	bool good = true;

	for (int i = 0; i < 8; i++) {
		children[i] = family_fork();
		if (children[i].pid == 0) {
			family_wait(&children[i]);
			good = pages_intact(&pages);
			pages_write_random(&pages, 30);
			_exit(!(pages_intact(&pages) && good));
		}
		pages_write_random(&pages, 30);
	}
	/* The eldest, the youngest, then the others. */
	for (int i = 0; i < 8; i++)
		good = family_join(&children[(i * 7) % 8]) && good;
	tap_ok(pages_intact(&pages) && good, "eight siblings each have the memory of their fork");
}

static void orphan(void)
{
	int ends[2];
	char verdict = 1;

	if (pipe(ends))
		tap_bail_out("pipe: %s", strerror(errno));
	struct child parent = family_fork();

	if (parent.pid == 0) {
		struct child child = family_fork();

		if (child.pid == 0) {
			family_wait(&child);
			verdict = !pages_intact(&pages);
			pages_write_all(&pages);
			verdict |= !pages_intact(&pages);
			_exit(write(ends[1], &verdict, 1) != 1);
		}
		pages_write_random(&pages, 30);
		_exit(0);
	}
	bool good = family_join(&parent);

	if (read(ends[0], &verdict, 1) != 1)
		verdict = 1;
	close(ends[0]);
	close(ends[1]);
	tap_ok(good && verdict == 0 && pages_intact(&pages),
	       "an orphan keeps its memory, and writes to it");
}

static void programs(void)
{
	struct child child = family_fork();

	if (child.pid == 0) {
		pages_write_random(&pages, 30);
		execl("/proc/self/exe", "inheritance", "nothing", NULL);
		_exit(1);
	}
	bool good = family_join(&child);

	tap_ok(good && pages_intact(&pages),
	       "a child that runs another program leaves the memory as it was");
	child = family_fork();
	if (child.pid == 0) {
		struct child grandchild = family_fork();

		if (grandchild.pid == 0) {
			family_wait(&grandchild);
			_exit(!pages_intact(&pages));
		}
		char pid[16];

		snprintf(pid, sizeof(pid), "%d", grandchild.pid);
		close(grandchild.go);
		execl("/proc/self/exe", "inheritance", "wait", pid, NULL);
		_exit(1);
	}
	tap_ok(family_join(&child),
	       "a parent that runs another program leaves the child its memory");
}

static void heap(void)
{
	char *start = sbrk(0);
	char *base = (char *)(((uintptr_t)start + TABLE - 1) & ~(TABLE - 1));
	bool good;

	if (brk(base + 3 * TABLE))
		tap_bail_out("brk: %s", strerror(errno));
	for (size_t i = 0; i < 3 * TABLE; i += PAGE)
		base[i] = 1;
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		good = true;
		for (size_t i = 0; i < 3 * TABLE; i += PAGE)
			good = good && base[i] == 1;
		_exit(!(good && brk(base + PAGE) == 0 && base[0] == 1));
	}
	if (brk(base + TABLE + 5 * PAGE) || brk(base + 3 * TABLE))
		tap_bail_out("brk: %s", strerror(errno));
	good = base[TABLE + 4 * PAGE] == 1 && base[TABLE + 5 * PAGE] == 0 && base[2 * TABLE] == 0;
	for (size_t i = 0; i < 3 * TABLE; i += PAGE)
		base[i] = 2;
	good = family_join(&child) && good;
	if (brk(start))
		tap_bail_out("brk: %s", strerror(errno));
	tap_ok(good, "the heap shrinks and grows on either side");
}

static void violence(void)
{
	bool good = true;

	for (int i = 0; i < 150; i++) {
		struct child child = family_fork();

		if (child.pid == 0) {
			for (;;) {
				pages_write_random(&pages, 5);
				if (i % 3 == 0)
					madvise(pages.base + 512 * PAGE, 700 * PAGE, MADV_DONTNEED);
			}
		}
		pages_write_random(&pages, 3);
		usleep(pages_random(&pages, 3000));
		kill(child.pid, SIGKILL);
		close(child.go);
		waitpid(child.pid, NULL, 0);
		good = good && (i % 10 || pages_intact(&pages));
	}
	tap_ok(pages_intact(&pages) && good,
	       "150 children killed at any moment leave the memory as it was");
}

static void vforks(void)
{
	volatile char *byte = pages_map(NULL, PAGE);
	pid_t pid = vfork();

	if (pid == 0) {
		*byte = 7;
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	tap_ok(*byte == 7, "vfork() still shares everything");
	munmap((void *)byte, PAGE);
}

int main(int argc, char **argv)
{
	if (argc == 2)
		return 0;
	if (argc == 3) {
		int status = -1;

		waitpid(atoi(argv[2]), &status, 0);
		return status != 0;
	}
	pages = pages_make(TABLES);
	child_keeps_the_memory_of_the_fork();
	parent_does_not_see_the_childs_writes();
	descendants();
	siblings();
	orphan();
	programs();
	heap();
	violence();
	vforks();
	tap_ok(pages_intact(&pages), "after all of that the memory is as it was");
	return tap_done();
}

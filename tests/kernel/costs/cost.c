// SPDX-License-Identifier: Apache-2.0
/*
 * What memory costs a process that has asked for nothing but fork() as it is: faults, forks and the
 * calls that change page tables. In nanoseconds of the guest's clock; in a guest that counts
 * instructions (-icount shift=0) one is one instruction. Each line is a name and the median of the
 * samples.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>

#include "../programs/family.h"
#include "../programs/pages.h"

#define SAMPLES 21
#define LONG_SAMPLES 5
#define MIB (1UL << 20)

/* A table's worth of memory, whole in one table, and what surrounds it. */
static char *table;

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

static char *map_small_pages(size_t bytes)
{
	char *area = pages_map(NULL, bytes + 2 * TABLE);
	char *aligned = (char *)(((uintptr_t)area + TABLE - 1) & ~(TABLE - 1));

	madvise(area, bytes + 2 * TABLE, MADV_NOHUGEPAGE);
	return aligned;
}

static void write_all(char *area, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += PAGE)
		*(volatile char *)(area + at) += 1;
}

static void read_all(const char *area, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += PAGE)
		(void)*(const volatile char *)(area + at);
}

static void must(long result, const char *what)
{
	if (result < 0)
		tap_bail_out("%s: %s", what, strerror(errno));
}

static double write_new(void)
{
	must(madvise(table, TABLE, MADV_DONTNEED), "madvise");
	double began = now();

	write_all(table, TABLE);
	return (now() - began) / 512;
}

static double read_new(void)
{
	must(madvise(table, TABLE, MADV_DONTNEED), "madvise");
	double began = now();

	read_all(table, TABLE);
	return (now() - began) / 512;
}

/* With a child that lives each write copies a page; the page is the writer's alone again after. */
static double write_shared(void)
{
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		_exit(0);
	}
	double began = now();

	write_all(table, TABLE);
	double took = now() - began;

	if (!family_join(&child))
		tap_bail_out("the child did not end well");
	return took / 512;
}

static double write_formerly_shared(void)
{
	struct child child = family_fork();

	if (child.pid == 0)
		_exit(0);
	if (!family_join(&child))
		tap_bail_out("the child did not end well");
	double began = now();

	write_all(table, TABLE);
	return (now() - began) / 512;
}

static double write_shared_memory(void)
{
	char *area = mmap(NULL, TABLE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	double began = now();

	if (area == MAP_FAILED)
		tap_bail_out("mmap: %s", strerror(errno));
	write_all(area, TABLE);
	double took = now() - began;

	munmap(area, TABLE);
	return took / 512;
}

static double map_and_unmap(void)
{
	double began = now();
	char *area = pages_map(NULL, TABLE);

	munmap(area, TABLE);
	return now() - began;
}

static double unmap(size_t bytes)
{
	char *area = pages_map(NULL, bytes);

	madvise(area, bytes, MADV_NOHUGEPAGE);
	write_all(area, bytes);
	double began = now();

	munmap(area, bytes);
	return now() - began;
}

static double unmap_table(void)
{
	return unmap(TABLE);
}

static double unmap_much(void)
{
	return unmap(32 * MIB);
}

static double protect(void)
{
	write_all(table, TABLE);
	double began = now();

	must(mprotect(table, TABLE, PROT_READ), "mprotect");
	must(mprotect(table, TABLE, PROT_READ | PROT_WRITE), "mprotect");
	return now() - began;
}

static double protect_page(void)
{
	char *page = table + 77 * PAGE;

	write_all(table, TABLE);
	double began = now();

	must(mprotect(page, PAGE, PROT_READ), "mprotect");
	must(mprotect(page, PAGE, PROT_READ | PROT_WRITE), "mprotect");
	return now() - began;
}

static double move(size_t offset)
{
	static char *other;
	double began;

	if (!other)
		other = map_small_pages(2 * TABLE);
	write_all(table, TABLE);
	began = now();
	must(mremap(table, TABLE, TABLE, MREMAP_MAYMOVE | MREMAP_FIXED, other + offset) ==
		     MAP_FAILED
		 ? -1
		 : 0,
	     "mremap");
	must(mremap(other + offset, TABLE, TABLE, MREMAP_MAYMOVE | MREMAP_FIXED, table) ==
		     MAP_FAILED
		 ? -1
		 : 0,
	     "mremap back");
	return now() - began;
}

static double move_table(void)
{
	return move(0);
}

static double move_pages(void)
{
	return move(3 * PAGE);
}

static double advise(int advice)
{
	write_all(table, TABLE);
	double began = now();

	must(madvise(table, TABLE, advice), "madvise");
	return now() - began;
}

static double forget(void)
{
	return advise(MADV_DONTNEED);
}

static double free_lazily(void)
{
	return advise(MADV_FREE);
}

static double lock(void)
{
	write_all(table, TABLE);
	double began = now();

	must(mlock(table, TABLE), "mlock");
	must(munlock(table, TABLE), "munlock");
	return now() - began;
}

/* By get_user_pages_remote(). */
static double write_remotely(void)
{
	struct iovec from = {table, TABLE / 2};
	struct iovec to = {table + TABLE / 2, TABLE / 2};

	write_all(table, TABLE);
	double began = now();

	must(process_vm_writev(getpid(), &from, 1, &to, 1, 0), "process_vm_writev");
	return (now() - began) / 256;
}

/* By get_user_pages_fast(). */
static double splice_pages(void)
{
	struct iovec from = {table, 16 * PAGE};
	int ends[2];

	must(pipe(ends), "pipe");
	write_all(table, TABLE);
	double began = now();

	must(vmsplice(ends[1], &from, 1, 0), "vmsplice");
	double took = now() - began;

	close(ends[0]);
	close(ends[1]);
	return took / 16;
}

static double walk(void)
{
	static unsigned char residency[512];

	write_all(table, TABLE);
	double began = now();

	must(mincore(table, TABLE, residency), "mincore");
	return now() - began;
}

static double grow_heap(void)
{
	char *end = sbrk(0);
	double began = now();

	must(brk(end + 64 * PAGE), "brk");
	must(brk(end), "brk");
	return now() - began;
}

/* The parent's time in fork(), then the child's whole life. */
static size_t inherited;

static double fork_once(bool until_its_end)
{
	static char *much;
	static size_t bytes;

	if (bytes != inherited) {
		if (bytes)
			munmap(much, bytes);
		bytes = inherited;
		much = map_small_pages(bytes);
		write_all(much, bytes);
	}
	double began = now();
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	double took = now() - began;
	int status = -1;

	must(pid, "fork");
	began = now();
	waitpid(pid, &status, 0);
	if (status)
		tap_bail_out("a child has status %#x", status);
	return until_its_end ? now() - began : took;
}

static double fork_begin(void)
{
	return fork_once(false);
}

static double fork_end(void)
{
	return fork_once(true);
}

/* Who is written to by process_vm_writev has pinned pages, and its forks are as ever: it is last.
 */
static const struct cost {
	const char *name;
	double (*sample)(void);
	size_t inherited;
	bool is_long;
} costs[] = {
    {"first-write", write_new, 0, false},
    {"first-read", read_new, 0, false},
    {"write-copying", write_shared, 0, false},
    {"write-reusing", write_formerly_shared, 0, false},
    {"first-write-shmem", write_shared_memory, 0, false},
    {"mmap-munmap", map_and_unmap, 0, false},
    {"munmap-2MiB", unmap_table, 0, false},
    {"munmap-32MiB", unmap_much, 0, true},
    {"mprotect-2MiB", protect, 0, false},
    {"mprotect-page", protect_page, 0, false},
    {"mremap-table", move_table, 0, false},
    {"mremap-pages", move_pages, 0, false},
    {"dontneed-2MiB", forget, 0, false},
    {"free-2MiB", free_lazily, 0, false},
    {"mlock-2MiB", lock, 0, false},
    {"gup-fast-page", splice_pages, 0, false},
    {"mincore-2MiB", walk, 0, false},
    {"brk", grow_heap, 0, false},
    {"fork-2MiB", fork_begin, 2 * MIB, true},
    {"exit-2MiB", fork_end, 2 * MIB, true},
    {"fork-64MiB", fork_begin, 64 * MIB, true},
    {"exit-64MiB", fork_end, 64 * MIB, true},
    {"fork-256MiB", fork_begin, 256 * MIB, true},
    {"exit-256MiB", fork_end, 256 * MIB, true},
    {"gup-remote-page", write_remotely, 0, false},
};

static int compare(const void *one, const void *other)
{
	double a = *(const double *)one;
	double b = *(const double *)other;

	return (a > b) - (a < b);
}

int main(void)
{
	double samples[SAMPLES];

	table = map_small_pages(TABLE);
	for (size_t i = 0; i < sizeof(costs) / sizeof(*costs); i++) {
		size_t count = costs[i].is_long ? LONG_SAMPLES : SAMPLES;

		inherited = costs[i].inherited;
		/* The first warms up what it meets. */
		costs[i].sample();
		for (size_t j = 0; j < count; j++)
			samples[j] = costs[i].sample();
		qsort(samples, count, sizeof(*samples), compare);
		tap_note("cost %s %.1f", costs[i].name, samples[count / 2]);
		tap_ok(samples[0] > 0, "%s", costs[i].name);
	}
	return tap_done();
}

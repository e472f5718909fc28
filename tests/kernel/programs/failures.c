// SPDX-License-Identifier: Apache-2.0
/*
 * Each allocation of a fork() fails once, and each of every call that has to copy a table first.
 * The call may fail then, but the memory is as it was, on either side. Only async-fork may end the
 * child instead, where the parent cannot copy a table to it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/rseq.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "counters.h"
#include "family.h"
#include "knobs.h"
#include "pages.h"

#define DEBUG "/sys/kernel/debug/"
#define FLIGHTS DEBUG "async_fork/stat"
#define TABLES 3
#define MOST 600

/* Whether this kernel can let any allocation fail, and does so without a word. */
static bool prepare(void)
{
	knobs_set(DEBUG "async_fork/fail/verbose", "0");
	return knobs_set(DEBUG "fail_page_alloc/ignore-gfp-wait", "N") &&
	       knobs_set(DEBUG "fail_page_alloc/ignore-gfp-highmem", "N") &&
	       knobs_set(DEBUG "fail_page_alloc/min-order", "0") &&
	       knobs_set(DEBUG "fail_page_alloc/verbose", "0") &&
	       knobs_set(DEBUG "failslab/ignore-gfp-wait", "N") &&
	       knobs_set(DEBUG "failslab/verbose", "0");
}

/*
 * Whenever this process has been preempted the kernel writes to a structure of the C library, on a
 * page that fork() has left to be copied. Were it this copy that fails, that would be a SIGSEGV.
 */
static void let_kernel_write_nothing(void)
{
	char *area = (char *)__builtin_thread_pointer() + __rseq_offset;

	if (__rseq_size &&
	    syscall(SYS_rseq, area, sizeof(struct rseq), RSEQ_FLAG_UNREGISTER, RSEQ_SIG))
		tap_bail_out("rseq: %s", strerror(errno));
}

static int nth_file(void)
{
	int file = open("/proc/thread-self/fail-nth", O_RDWR);

	if (file < 0)
		tap_bail_out("fail-nth: %s", strerror(errno));
	return file;
}

static void begin(int file, int nth)
{
	char text[16];
	int length = snprintf(text, sizeof(text), "%d", nth);

	if (pwrite(file, text, length, 0) != length)
		tap_bail_out("fail-nth: %s", strerror(errno));
}

/* Whether the allocation did fail. */
static bool end(int file)
{
	char text[16] = "";

	if (pread(file, text, sizeof(text) - 1, 0) <= 0)
		tap_bail_out("fail-nth: %s", strerror(errno));
	begin(file, 0);
	return atoi(text) == 0;
}

static void forks(void)
{
	struct pages pages = pages_make(TABLES);
	long rss = counters_read("/proc/self/status", "RssAnon");
	int file = nth_file();
	int failed = 0;
	int nth = 0;
	bool good = true;
	bool came = true;

	while (came && nth < MOST && good) {
		begin(file, ++nth);
		pid_t pid = fork();

		if (pid == 0) {
			good = pages_intact(&pages);
			pages_write_random(&pages, 20);
			_exit(!(pages_intact(&pages) && good));
		}
		came = end(file);
		failed += pid < 0;
		pages_write_random(&pages, 20);
		if (pid > 0) {
			struct child child = {.pid = pid, .go = -1};

			good = family_join(&child) && good;
		}
		good = pages_intact(&pages) && good;
	}
	tap_note("%d of %d forks failed", failed, nth);
	tap_ok(good && failed > 10 && !came,
	       "a fork whose n-th allocation fails leaves the memory as it was, for each n");
	rss = counters_read("/proc/self/status", "RssAnon") - rss;
	tap_ok(labs(rss) <= 300, "and nothing is counted that is not there: %ld kB", rss);
	close(file);
	pages_unmake(&pages);
}

static int write_page(struct pages *pages)
{
	pages_write(pages, 700);
	return 0;
}

static int protect(struct pages *pages)
{
	int result = mprotect(pages->base + 600 * PAGE, 700 * PAGE, PROT_READ);

	if (mprotect(pages->base, pages->count * PAGE, PROT_READ | PROT_WRITE))
		mprotect(pages->base, pages->count * PAGE, PROT_READ | PROT_WRITE);
	return result;
}

static int unmap(struct pages *pages)
{
	if (munmap(pages->base + 700 * PAGE, 600 * PAGE))
		return -1;
	/* The allocation may fail on the way back instead, once. */
	while (mmap(pages->base + 700 * PAGE, 600 * PAGE, PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		;
	madvise(pages->base + 700 * PAGE, 600 * PAGE, MADV_NOHUGEPAGE);
	pages_forget(pages, 700, 600);
	return 0;
}

static int forget(struct pages *pages)
{
	int result = madvise(pages->base + 400 * PAGE, 900 * PAGE, MADV_DONTNEED);

	/* Part of it may be forgotten then. */
	if (result && madvise(pages->base + 400 * PAGE, 900 * PAGE, MADV_DONTNEED))
		tap_bail_out("madvise: %s", strerror(errno));
	pages_forget(pages, 400, 900);
	return result;
}

static int move(struct pages *pages)
{
	char *area = mmap(NULL, 600 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *from = pages->base + 600 * PAGE;

	if (area == MAP_FAILED)
		return -1;
	if (mremap(from, 600 * PAGE, 600 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, area) ==
	    MAP_FAILED) {
		munmap(area, 600 * PAGE);
		return -1;
	}
	/* The allocation may fail on the way back too, once. */
	while (mremap(area, 600 * PAGE, 600 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, from) ==
	       MAP_FAILED)
		;
	return 0;
}

static int lock(struct pages *pages)
{
	/* Each page is copied where fork() is the default one, and every copy is an allocation. */
	int result = mlock(pages->base + 600 * PAGE, 100 * PAGE);

	munlock(pages->base, pages->count * PAGE);
	return result;
}

static int write_remotely(struct pages *pages)
{
	uint64_t words[PAGE / 8] = {pages->next};
	struct iovec from = {words, PAGE};
	struct iovec to = {pages->base + 800 * PAGE, PAGE};

	words[PAGE / 8 - 1] = ~pages->next;
	if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) != (ssize_t)PAGE)
		return -1;
	pages->stamps[800] = pages->next++;
	return 0;
}

static const struct operation {
	const char *name;
	int (*run)(struct pages *pages);
} operations[] = {
    {"a write", write_page},
    {"mprotect", protect},
    {"munmap", unmap},
    {"MADV_DONTNEED", forget},
    {"mremap", move},
    {"mlock", lock},
    {"process_vm_writev", write_remotely},
};

/* How many fork()s have ended with the child, or 0 if the kernel does not tell. */
static long aborted(void)
{
	return access(FLIGHTS, R_OK) ? 0 : counters_read(FLIGHTS, "aborted");
}

static void sweep(const struct operation *operation)
{
	long aborted_before = aborted();
	int file = nth_file();
	int killed = 0;
	bool came = true;
	bool good = true;
	int failed = 0;
	int nth = 0;

	while (came && nth < MOST && good) {
		struct pages pages = pages_make(TABLES);
		struct child child = family_fork();

		if (child.pid == 0) {
			family_wait(&child);
			good = pages_intact(&pages);
			pages_write_random(&pages, 20);
			_exit(!(pages_intact(&pages) && good));
		}
		begin(file, ++nth);
		failed += operation->run(&pages) != 0;
		came = end(file);
		good = pages_intact(&pages);
		pages_write_random(&pages, 20);
		int status = family_end(&child);

		/* What the child would have got is lost, but only if there was a failure. */
		if (status == SIGKILL && came && knobs_async_fork())
			killed++;
		else
			good = good && status == 0;
		good = pages_intact(&pages) && good;
		pages_unmake(&pages);
	}
	tap_note("%d of %d calls failed", failed, nth);
	if (knobs_async_fork())
		tap_note("%d of %d children were killed", killed, nth);
	if (!access(FLIGHTS, R_OK) && aborted() - aborted_before != killed) {
		tap_note("but %ld forks were given up", aborted() - aborted_before);
		good = false;
	}
	tap_ok(good && !came, "%s whose n-th allocation fails leaves both memories whole",
	       operation->name);
	close(file);
}

int main(void)
{
	if (!prepare()) {
		tap_skip("failing allocations", "this kernel injects no failures");
		return tap_done();
	}
	let_kernel_write_nothing();
	forks();
	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++)
		sweep(&operations[i]);
	return tap_done();
}

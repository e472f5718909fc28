// SPDX-License-Identifier: Apache-2.0
/* A server in small: holds memory, forks, writes and waits on command, and says when it did. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096
#define MIB ((size_t)1 << 20)
#define CHILD_STATUS 7

static char *memory;
static size_t memory_bytes;
static pid_t child, first_child;
static int release_fd, first_release_fd;

static uint64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static void answer(uint64_t before, uint64_t after, uint64_t value)
{
	printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", before, after, value);
	fflush(stdout);
}

static void touch(size_t pages)
{
	for (size_t i = 0; i < pages; i++)
		((volatile char *)memory)[i * PAGE]++;
}

/* The child lives until its end of the pipe is closed. */
static void do_fork(size_t child_pages)
{
	uint64_t before, after;
	int ends[2];

	if (pipe(ends))
		exit(1);
	first_child = child;
	first_release_fd = release_fd;
	before = now_ns(CLOCK_MONOTONIC);
	child = fork();
	if (!child) {
		char c;

		close(ends[1]);
		/* Or this child would keep an older one alive. */
		if (first_release_fd)
			close(first_release_fd);
		touch(child_pages);
		while (read(ends[0], &c, 1) < 0 && errno == EINTR)
			;
		_exit(CHILD_STATUS);
	}
	after = now_ns(CLOCK_MONOTONIC);
	close(ends[0]);
	release_fd = ends[1];
	answer(before, after, (uint64_t)child);
}

static void do_touch(size_t pages)
{
	uint64_t before = now_ns(CLOCK_MONOTONIC);

	touch(pages);
	answer(before, now_ns(CLOCK_MONOTONIC), (uintptr_t)memory);
}

static void do_release(pid_t which, int *fd)
{
	uint64_t before = now_ns(CLOCK_MONOTONIC);
	int status = 0;

	close(*fd);
	*fd = 0;
	waitpid(which, &status, 0);
	answer(before, now_ns(CLOCK_MONOTONIC), (uint64_t)status);
}

/* The first write to each 2 MiB of fresh memory needs a page table. */
static void do_grow(size_t tables)
{
	size_t stride = 2 * MIB, bytes = (tables + 1) * stride;
	char *fresh = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *first = (char *)(((uintptr_t)fresh + stride - 1) & ~(stride - 1));
	uint64_t before = now_ns(CLOCK_MONOTONIC);

	if (fresh == MAP_FAILED)
		exit(1);
	madvise(fresh, bytes, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < tables; i++)
		((volatile char *)first)[i * stride] = 1;
	answer(before, now_ns(CLOCK_MONOTONIC), (uintptr_t)first);
}

/* The third number is the time that it did not have the CPU. */
static void do_spin(uint64_t wall_ns)
{
	uint64_t before = now_ns(CLOCK_MONOTONIC);
	uint64_t cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
	uint64_t after;

	do
		after = now_ns(CLOCK_MONOTONIC);
	while (after - before < wall_ns);
	answer(before, after, after - before - (now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu));
}

/* Appends to a file that has no name and waits for the disk, so many times. The third number is the
 * time that it did not have the CPU. */
static void do_sync(uint64_t times)
{
	int fd = open(".", O_TMPFILE | O_RDWR, 0600);
	uint64_t before, cpu, after;

	if (fd < 0)
		exit(1);
	before = now_ns(CLOCK_MONOTONIC);
	cpu = now_ns(CLOCK_THREAD_CPUTIME_ID);
	while (times--)
		if (write(fd, memory, PAGE) != PAGE || fsync(fd))
			exit(1);
	after = now_ns(CLOCK_MONOTONIC);
	answer(before, after, after - before - (now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu));
	close(fd);
}

static void *touch_in_thread(void *pages)
{
	touch(*(size_t *)pages);
	return NULL;
}

static void do_thread(size_t pages)
{
	uint64_t before = now_ns(CLOCK_MONOTONIC);
	pthread_t thread;

	if (pthread_create(&thread, NULL, touch_in_thread, &pages))
		exit(1);
	pthread_join(thread, NULL);
	answer(before, now_ns(CLOCK_MONOTONIC), (uintptr_t)memory);
}

int main(int argc, char **argv)
{
	char line[64];

	if (argc != 2)
		return 2;
	memory_bytes = strtoul(argv[1], NULL, 10) * MIB;
	memory =
	    mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return 1;
	madvise(memory, memory_bytes, MADV_NOHUGEPAGE);
	memset(memory, 1, memory_bytes);
	answer(0, now_ns(CLOCK_MONOTONIC), (uintptr_t)memory);
	while (fgets(line, sizeof(line), stdin)) {
		char *rest = strchr(line, ' ');
		uint64_t number = rest ? strtoull(rest, NULL, 10) : 0;

		if (strncmp(line, "fork", 4) == 0)
			do_fork(number);
		else if (strncmp(line, "touch", 5) == 0)
			do_touch(number);
		else if (strncmp(line, "release-first", 13) == 0)
			do_release(first_child, &first_release_fd);
		else if (strncmp(line, "release", 7) == 0)
			do_release(child, &release_fd);
		else if (strncmp(line, "grow", 4) == 0)
			do_grow(number);
		else if (strncmp(line, "spin", 4) == 0)
			do_spin(number);
		else if (strncmp(line, "sync", 4) == 0)
			do_sync(number);
		else if (strncmp(line, "thread", 6) == 0)
			do_thread(number);
		else
			return 2;
	}
	return 0;
}

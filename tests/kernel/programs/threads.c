// SPDX-License-Identifier: Apache-2.0
/* Forks while threads write, map and unmap: a child has every write up to some moment, and none
 * after it. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>

#include "family.h"
#include "pages.h"

#define WRITERS 3
#define FORKS 40
#define WRITER_PAGES 1500UL

static atomic_bool stop;

/* Page n % WRITER_PAGES of a writer holds n, the number of the write. */
struct writer {
	pthread_t thread;
	char *base;
};

static void *write_on(void *argument)
{
	const struct writer *writer = argument;

	for (uint64_t number = WRITER_PAGES; !atomic_load_explicit(&stop, memory_order_relaxed);
	     number++) {
		atomic_store_explicit(
		    (_Atomic uint64_t *)(writer->base + number % WRITER_PAGES * PAGE), number,
		    memory_order_release);
		/* A moment in which the other threads get a CPU, now and then. */
		if (number % 4096 == 0)
			usleep(1);
	}
	return NULL;
}

/* Whether the pages hold the numbers up to some last one, each the latest of its page. */
static bool is_prefix(const struct writer *writer)
{
	uint64_t last = 0;

	for (size_t index = 0; index < WRITER_PAGES; index++) {
		uint64_t number = *(const volatile uint64_t *)(writer->base + index * PAGE);

		last = number > last ? number : last;
	}
	for (uint64_t number = last - WRITER_PAGES + 1; number <= last; number++) {
		uint64_t found =
		    *(const volatile uint64_t *)(writer->base + number % WRITER_PAGES * PAGE);

		if (found != number) {
			tap_note("page %lu holds %lu instead of %lu; the last is %lu",
				 number % WRITER_PAGES, found, number, last);
			return false;
		}
	}
	return true;
}

static void *map_on(void *argument)
{
	struct pages *pages = argument;

	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		size_t first = pages_random(pages, pages->count - 600);

		madvise(pages->base + first * PAGE, 600 * PAGE, MADV_DONTNEED);
		pages_forget(pages, first, 600);
		mprotect(pages->base + first * PAGE, 600 * PAGE, PROT_READ);
		mprotect(pages->base + first * PAGE, 600 * PAGE, PROT_READ | PROT_WRITE);
		pages_write_random(pages, 100);
		munmap(pages->base + first * PAGE, 300 * PAGE);
		pages_map(pages->base + first * PAGE, 300 * PAGE);
		pages_forget(pages, first, 300);
		usleep(500);
	}
	return NULL;
}

static void *read_on(void *argument)
{
	const struct pages *pages = argument;
	char name[64];
	char line[4096];

	snprintf(name, sizeof(name), "/proc/%d/smaps", getpid());
	while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
		unsigned char residence[4096];
		FILE *file = fopen(name, "r");

		while (file && fgets(line, sizeof(line), file))
			;
		if (file)
			fclose(file);
		mincore(pages->base, pages->count * PAGE, residence);
	}
	return NULL;
}

int main(void)
{
	struct writer writers[WRITERS];
	struct pages pages = pages_make(4);
	pthread_t mapper;
	pthread_t reader;
	bool consistent = true;

	for (int i = 0; i < WRITERS; i++) {
		writers[i].base = pages_map(NULL, WRITER_PAGES * PAGE);
		madvise(writers[i].base, WRITER_PAGES * PAGE, MADV_NOHUGEPAGE);
		for (uint64_t number = 0; number < WRITER_PAGES; number++)
			*(uint64_t *)(writers[i].base + number * PAGE) = number;
		pthread_create(&writers[i].thread, NULL, write_on, &writers[i]);
	}
	pthread_create(&mapper, NULL, map_on, &pages);
	pthread_create(&reader, NULL, read_on, &pages);
	for (int i = 0; i < FORKS; i++) {
		struct child child = family_fork();

		if (child.pid == 0) {
			bool good = true;

			usleep(1000);
			for (int j = 0; j < WRITERS; j++)
				good = is_prefix(&writers[j]) && good;
			for (int j = 0; j < WRITERS; j++)
				*(volatile uint64_t *)(writers[j].base +
						       (i + j) * 37 % WRITER_PAGES * PAGE) = 0;
			_exit(!good);
		}
		if (i % 4 == 3)
			kill(child.pid, SIGKILL);
		bool good = family_join(&child);

		consistent = consistent && (good || i % 4 == 3);
	}
	atomic_store(&stop, true);
	for (int i = 0; i < WRITERS; i++)
		pthread_join(writers[i].thread, NULL);
	pthread_join(mapper, NULL);
	pthread_join(reader, NULL);
	tap_ok(consistent, "each of %d children has every write of each thread up to some moment",
	       FORKS);
	for (int i = 0; i < WRITERS; i++)
		tap_ok(is_prefix(&writers[i]), "the parent lost no write of thread %d", i);
	tap_ok(pages_intact(&pages), "nor of the thread that maps and unmaps");
	return tap_done();
}

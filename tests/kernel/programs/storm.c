// SPDX-License-Identifier: Apache-2.0
/*
 * Async-fork: many forks, every third child of which is killed before it has copied everything, and
 * nothing is left of them. The argument is how many.
 */
#define _GNU_SOURCE
#include <glob.h>
#include <time.h>

#include "family.h"
#include "flight.h"
#include "knobs.h"
#include "pages.h"

#define TABLES 4
#define FORKS 10000
#define APART 8
#define SLACK_PAGES 96

/* Slab memory is what a flight itself would leave behind; caches grow and shrink by themselves. */
static const struct counter {
	const char *file;
	const char *name;
	long slack;
} counters[] = {
    {"/proc/vmstat", "nr_page_table_pages", SLACK_PAGES},
    {"/proc/vmstat", "nr_anon_pages", SLACK_PAGES},
    {"/proc/meminfo", "SUnreclaim", 1024},
    {"/proc/self/status", "VmPTE", 0},
    {"/proc/self/status", "RssAnon", 300},
};
#define COUNTERS (sizeof(counters) / sizeof(*counters))

static void read_counters(long *values)
{
	for (size_t i = 0; i < COUNTERS; i++)
		values[i] = counters_read(counters[i].file, counters[i].name);
}

/* A cache keeps empty slabs, and KASAN what was freed, until the cache is shrunk. */
static void shrink_caches(void)
{
	glob_t caches;

	if (glob("/sys/kernel/slab/*/shrink", 0, NULL, &caches) == 0)
		for (size_t i = 0; i < caches.gl_pathc; i++)
			knobs_set(caches.gl_pathv[i], "1");
	globfree(&caches);
}

/* They lag: per-CPU parts of them, tables that wait for RCU, processes that are not reaped yet. */
static void come_back(const long *before, const char *when)
{
	long now = 0;

	shrink_caches();
	for (size_t i = 0; i < COUNTERS; i++) {
		for (int tries = 0; tries < 100; tries++) {
			now = counters_read(counters[i].file, counters[i].name);
			if (labs(now - before[i]) <= counters[i].slack)
				break;
			usleep(100000);
		}
		tap_ok(labs(now - before[i]) <= counters[i].slack, "%s was %ld and is %ld %s",
		       counters[i].name, before[i], now, when);
	}
}

/* Few pages in each table, since it is the tables that count here, and pages are slow to copy. */
static struct pages make_sparse(void)
{
	struct pages pages = pages_make(TABLES);

	for (size_t page = 0; page < pages.count; page += APART) {
		madvise(pages.base + (page + 1) * PAGE, (APART - 1) * PAGE, MADV_DONTNEED);
		pages_forget(&pages, page + 1, APART - 1);
	}
	return pages;
}

static void write_some(struct pages *pages)
{
	for (size_t writes = pages_random(pages, 3); writes; writes--)
		pages_write(pages, APART * pages_random(pages, pages->count / APART));
}

/* Stopped by the hold knob with more tables left than the parent writes to, so in flight for
 * certain.
 */
static bool killed_in_flight(struct pages *pages, long left)
{
	int status = 0;

	flight_hold(left);
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	for (int i = 0; flight_get("waiting") == 0; i++) {
		if (i == 20000)
			tap_bail_out("no child stops");
		usleep(50);
	}
	write_some(pages);
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	flight_release();
	return status == SIGKILL;
}

static bool whole(struct pages *pages)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0) {
		for (size_t page = 0; page < pages->count; page += APART)
			if (*(uint64_t *)(pages->base + page * PAGE) != pages->stamps[page])
				_exit(1);
		_exit(0);
	}
	write_some(pages);
	waitpid(pid, &status, 0);
	return status == 0;
}

static int storm(struct pages *pages, int forks)
{
	time_t began = time(NULL);
	int good = 0;

	for (int i = 0; i < forks; i++) {
		if (i && i % 2000 == 0)
			tap_note("%d forks after %ld s", i, time(NULL) - began);
		good += i % 3 ? whole(pages) : killed_in_flight(pages, i % 2 ? FLIGHT_ALL : 3);
	}
	return good;
}

/* In a process of its own, so that what is left of a parent is found too. */
static void storm_of_a_parent(int forks)
{
	long before[COUNTERS];
	struct pages pages = make_sparse();

	/* What the process, and the caches, want anyway. */
	storm(&pages, 300);
	shrink_caches();
	read_counters(before);
	long flights = flight_count("flights");
	long aborted = flight_count("aborted");
	int good = storm(&pages, forks);

	tap_ok(good == forks, "%d of %d children had the memory of the fork, or were killed", good,
	       forks);
	tap_ok(flight_count("flights") - flights == forks &&
		   flight_count("aborted") - aborted == (forks + 2) / 3,
	       "%ld of them were in flight, %ld killed there", flight_count("flights") - flights,
	       flight_count("aborted") - aborted);
	tap_ok(flight_all_over() && pages_intact(&pages), "the memory is as it was");
	come_back(before, "after the storm");
}

int main(int argc, char **argv)
{
	int forks = argc > 1 ? atoi(argv[1]) : FORKS;
	long before[COUNTERS];
	int status = -1;

	if (!flight_possible("a storm of forks"))
		return tap_done();
	shrink_caches();
	read_counters(before);
	pid_t pid = fork();

	if (pid == 0) {
		storm_of_a_parent(forks);
		/* The numbers of the points that it has reported, of which the parent goes on. */
		_exit(tap_failures ? 255 : tap_count);
	}
	waitpid(pid, &status, 0);
	tap_count = 3 + COUNTERS;
	tap_ok(WIFEXITED(status) && WEXITSTATUS(status) == tap_count,
	       "the parent of all came to its end");
	come_back(before, "after that parent");
	return tap_done();
}

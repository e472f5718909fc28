// SPDX-License-Identifier: Apache-2.0
/* Nothing is lost and nothing is counted twice: the counters of a process and of the machine, after
 * a storm of forks. */
#define _GNU_SOURCE
#include "counters.h"
#include "family.h"
#include "pages.h"

#define STORM 300
#define SLACK_PAGES 96

static const char *const own[] = {"RssAnon", "VmPTE", "VmSwap"};
/* RssAnon is kept in batches of 64 pages, and the stack has one more now and then. */
static const long own_slack[] = {300, 0, 0};
static const char *const everywhere[] = {"nr_page_table_pages", "nr_anon_pages"};

/* The machine's counters lag: per-CPU parts of them, tables that wait for RCU, processes that are
 * not reaped yet. */
static bool comes_back(const char *name, long before)
{
	long now = 0;

	for (int i = 0; i < 50; i++) {
		now = counters_read("/proc/vmstat", name);
		if (labs(now - before) <= SLACK_PAGES)
			return true;
		usleep(100000);
	}
	tap_note("%s was %ld and is %ld", name, before, now);
	return false;
}

static void storm(struct pages *pages)
{
	for (int i = 0; i < STORM; i++) {
		struct child child = family_fork();

		if (child.pid == 0) {
			pages_write_random(pages, pages_random(pages, 20));
			if (i % 5 == 0 && fork() == 0)
				pages_write_random(pages, 10);
			if (i % 4 == 0)
				munmap(pages->base + 512 * PAGE, 900 * PAGE);
			family_wait(&child);
			_exit(0);
		}
		pages_write_random(pages, pages_random(pages, 10));
		if (i % 3 == 0)
			kill(child.pid, SIGKILL);
		family_join(&child);
	}
}

static void exact_in_the_process(struct pages *pages)
{
	long before[3];
	long after[3];

	/* The first storm also brings in what the process needs for itself: stack, heap, their
	 * tables. */
	storm(pages);
	for (int i = 0; i < 3; i++)
		before[i] = counters_read("/proc/self/status", own[i]);
	storm(pages);
	for (int i = 0; i < 3; i++) {
		after[i] = counters_read("/proc/self/status", own[i]);
		tap_ok(labs(after[i] - before[i]) <= own_slack[i],
		       "%s is %ld kB after %d forks, it was %ld kB", own[i], after[i], STORM,
		       before[i]);
	}
}

static void exact_in_the_last_of_the_family(struct pages *pages)
{
	long before = counters_read("/proc/self/status", "RssAnon");
	struct child parent = family_fork();

	if (parent.pid == 0) {
		struct child child = family_fork();

		if (child.pid == 0) {
			pages_write_all(pages);
			_exit(labs(counters_read("/proc/self/status", "RssAnon") - before) > 128);
		}
		munmap(pages->base, pages->count * PAGE);
		bool well = family_join(&child);

		_exit(!(well && counters_read("/proc/self/status", "RssAnon") < 1024));
	}
	tap_ok(family_join(&parent),
	       "memory counts for who wrote to it, and no more for who unmapped it");
}

int main(void)
{
	long before[2];

	for (int i = 0; i < 2; i++)
		before[i] = counters_read("/proc/vmstat", everywhere[i]);
	struct pages pages = pages_make(6);

	exact_in_the_process(&pages);
	exact_in_the_last_of_the_family(&pages);
	tap_ok(pages_intact(&pages), "the memory is as it was");
	pages_unmake(&pages);
	for (int i = 0; i < 2; i++)
		tap_ok(comes_back(everywhere[i], before[i]), "%s is back where it was",
		       everywhere[i]);
	return tap_done();
}

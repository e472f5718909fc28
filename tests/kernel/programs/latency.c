// SPDX-License-Identifier: Apache-2.0
/* How long fork() takes with 1000 MiB resident, how long the slowest write after it, and how often
 * tables were copied. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/prctl.h>
#include <time.h>

#include "family.h"
#include "pages.h"

#define PR_SET_ODF 0x4f444601
#define TRACING "/sys/kernel/tracing/"
#define TABLES 500
#define TABLES_WRITTEN 100
#define FORKS 3

/* A write to a page is one to its stamp too. Stamps enough for a table fill one if they happen to
 * begin with it; it would be shared, and copied like those that are counted. */
_Static_assert((TABLES * 512 + 40) * sizeof(uint64_t) < TABLE, "the stamps can fill a table");

struct timing {
	double fork;
	double copying;
	double slowest_write;
	int copies;
};

static double milliseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void set(const char *file, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), TRACING "%s", file);
	int descriptor = open(path, O_WRONLY | O_TRUNC);

	if (descriptor < 0 || write(descriptor, value, strlen(value)) < 0)
		tap_bail_out("%s cannot be set to %s: %s", path, value, strerror(errno));
	close(descriptor);
}

static void trace(void)
{
	char pid[16];

	snprintf(pid, sizeof(pid), "%d", getpid());
	set("tracing_on", "0");
	set("trace", "");
	set("trace_clock", "mono");
	set("set_ftrace_filter", "copy_pmd_range");
	set("set_ftrace_pid", pid);
	set("set_event_pid", pid);
	set("events/fork_pt/enable", "1");
	set("current_tracer", "function");
	set("tracing_on", "1");
}

/* From the trace: how long the page tables took in fork(), and the calls of copy_pmd_range() after
 * it. */
static void read_trace(struct timing *timing)
{
	FILE *file = fopen(TRACING "trace", "r");
	bool forked = false;
	double began = 0;
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		const char *flags = strchr(line, ']');
		double seconds = 0;

		if (line[0] == '#' || !flags || sscanf(flags + 1, "%*s %lf:", &seconds) != 1)
			continue;
		if (strstr(line, "fork_pt_start:"))
			began = seconds;
		if (strstr(line, "fork_pt_done:")) {
			timing->copying = (seconds - began) * 1e3;
			forked = true;
		}
		if (strstr(line, "copy_pmd_range <-"))
			timing->copies += forked;
	}
	if (file)
		fclose(file);
	set("tracing_on", "0");
	set("current_tracer", "nop");
	set("events/fork_pt/enable", "0");
}

static struct timing measure_one(struct pages *pages)
{
	struct timing timing = {0};

	trace();
	double began = milliseconds();
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		_exit(!pages_intact(pages));
	}
	timing.fork = milliseconds() - began;
	for (size_t i = 0; i < TABLES_WRITTEN; i++) {
		size_t page = 20 + i * 512;

		began = milliseconds();
		pages_write(pages, page);
		double took = milliseconds() - began;

		timing.slowest_write = took > timing.slowest_write ? took : timing.slowest_write;
		pages_write(pages, page + 100);
		pages_write(pages, page + 400);
	}
	read_trace(&timing);
	tap_ok(family_join(&child), "the child keeps the memory of the fork");
	tap_note("fork() %.3f ms, of which page tables %.3f ms; slowest write %.3f ms; %d copies "
		 "for %d tables",
		 timing.fork, timing.copying, timing.slowest_write, timing.copies, TABLES_WRITTEN);
	return timing;
}

/* Of a few forks the least time on page tables, since a busy host prolongs one at random, and the
 * copies of one of them if all have as many, else -1. */
static struct timing measure(struct pages *pages)
{
	struct timing best = measure_one(pages);

	for (int i = 1; i < FORKS; i++) {
		struct timing timing = measure_one(pages);

		if (timing.copying < best.copying)
			best.copying = timing.copying;
		if (timing.copies != best.copies)
			best.copies = -1;
	}
	return best;
}

int main(void)
{
	struct pages pages = pages_make(TABLES);
	bool can_share = prctl(PR_SET_ODF, 0, 0, 0, 0) == 0;
	struct timing copied = measure(&pages);

	tap_ok(copied.copies == 0, "fork() leaves no table to be copied later");
	/* The pages that were written to then are exclusive again, as all others. */
	pages_write_all(&pages);
	if (!can_share) {
		tap_skip("on-demand fork", "this kernel has none");
		return tap_done();
	}
	prctl(PR_SET_ODF, 1, 0, 0, 0);
	struct timing shared = measure(&pages);

	tap_ok(shared.copies == TABLES_WRITTEN,
	       "each table that was written to is copied once, in copy_pmd_range()");
	tap_ok(shared.copying * 10 < copied.copying,
	       "fork() spends a tenth of the time on page tables, or less");
	pages_write_all(&pages);
	tap_ok(pages_intact(&pages), "the memory is as it was");
	return tap_done();
}

// SPDX-License-Identifier: Apache-2.0
/*
 * How long the copying of page tables takes after an asynchronous fork(), by the number of threads:
 * of each thread, the time that it was on a CPU between the beginning of the fork and its end.
 * Where instructions are counted (-icount, one CPU) that is what each would take on a CPU of its
 * own, and the longest is the critical path. COPYING_MIB is the size of the parent, 1024 if not
 * given.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <time.h>

#include "../programs/family.h"
#include "../programs/knobs.h"
#include "../programs/pages.h"

#define TRACING "/sys/kernel/tracing/"
#define MOST_THREADS 64
#define REPEATS 3

struct thread {
	int pid;
	double run;
};

static void trace(const char *on)
{
	static const char *const events[] = {
	    "sched/sched_switch", "fork_pt/fork_pt_start", "fork_pt/fork_pt_done",
	    "workqueue/workqueue_execute_start", "workqueue/workqueue_execute_end"};
	char path[128];

	knobs_demand(TRACING "tracing_on", "0");
	if (*on == '1') {
		knobs_demand(TRACING "trace", "");
		knobs_demand(TRACING "trace_clock", "mono");
		knobs_demand(TRACING "buffer_size_kb", "8192");
	}
	for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
		snprintf(path, sizeof(path), TRACING "events/%s/enable", events[i]);
		knobs_demand(path, on);
	}
	knobs_demand(TRACING "tracing_on", on);
}

static struct thread *thread_of(struct thread *threads, int pid)
{
	for (size_t i = 0; i < MOST_THREADS; i++) {
		if (threads[i].pid == pid)
			return &threads[i];
		if (threads[i].pid == 0) {
			threads[i].pid = pid;
			return &threads[i];
		}
	}
	tap_bail_out("too many threads in the trace");
}

/*
 * From the trace: the copying time of the child, at [0], and of each helper; and the parent's in
 * fork(). What counts of a kworker is what it does while it helps.
 */
struct flight {
	struct thread threads[MOST_THREADS];
	double parent;
	double whole;
	unsigned long tables;
};

static struct flight read_trace(int parent, int child, double returned)
{
	struct flight flight = {.threads = {{.pid = child}}};
	double began = 0;
	double last = 0;
	bool helping[MOST_THREADS] = {false};
	FILE *file = fopen(TRACING "trace", "r");
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		char *colon = strstr(line, ": ");
		char *dash;
		double at;
		int pid;

		if (*line == '#' || !colon)
			continue;
		char *bracket = strstr(line, " [0");

		if (!bracket)
			continue;
		*bracket = 0;
		dash = strrchr(line, '-');
		pid = atoi(dash + 1);
		if (sscanf(bracket + 1, "%*s %*s %lf", &at) != 1)
			continue;
		at *= 1e6;
		char *event = bracket + 1;

		if (strstr(event, "fork_pt_start:") && pid == parent) {
			began = last = at;
			continue;
		}
		if (began == 0)
			continue;
		/* Since the last event its task was running, on the only CPU there is. */
		struct thread *thread = thread_of(flight.threads, pid);

		if (pid == parent)
			flight.parent +=
			    at > returned ? (last < returned ? returned - last : 0) : at - last;
		else if (pid == child || helping[thread - flight.threads])
			thread->run += at - last;
		last = at;
		if (strstr(event, "workqueue_execute_start:"))
			helping[thread - flight.threads] = strstr(event, "function help") != NULL;
		else if (strstr(event, "workqueue_execute_end:"))
			helping[thread - flight.threads] = false;
		char *done = strstr(event, "fork_pt_done:");

		if (done) {
			char *tables = strstr(done, "tables=");

			flight.tables = tables ? strtoul(tables + 7, NULL, 10) : 0;
			flight.whole = at - began;
			if (pid == child)
				break;
			tap_bail_out("fork() was not asynchronous");
		}
	}
	if (file)
		fclose(file);
	if (flight.whole == 0)
		tap_bail_out("the trace has no end of the fork");
	return flight;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static double critical_path(int threads)
{
	double longest = 0;
	double sum = 0;
	char text[256] = "";
	int helpers = 0;

	knobs_set_threads(threads);
	trace("1");
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		_exit(0);
	}
	double returned = now();

	if (!family_join(&child))
		tap_bail_out("the child did not end well");
	trace("0");
	struct flight flight = read_trace(getpid(), child.pid, returned);

	for (int i = 0; i < MOST_THREADS && flight.threads[i].pid; i++) {
		double run = flight.threads[i].run;

		if (run == 0)
			continue;
		longest = run > longest ? run : longest;
		sum += run;
		helpers += i > 0;
		snprintf(text + strlen(text), sizeof(text) - strlen(text), " %.1f", run);
	}
	tap_note("copying %d %lu %.1f %.1f %.1f: child and %d helpers%s us", threads, flight.tables,
		 flight.parent, longest, sum, helpers, text);
	return longest;
}

int main(void)
{
	static const int counts[] = {1, 2, 4};
	const char *size = getenv("COPYING_MIB");
	struct pages pages;
	double best[3];

	if (!knobs_set_threads(1)) {
		tap_skip("copying", "this kernel has no memory.async_fork");
		return tap_done();
	}
	pages = pages_make((size ? atol(size) : 1024) / 2);
	tap_note("threads, tables, parent in fork, longest thread, sum of all threads; us");
	for (int i = 0; i < 3; i++) {
		best[i] = 1e30;
		for (int j = 0; j < REPEATS; j++) {
			double path = critical_path(counts[i]);

			best[i] = path < best[i] ? path : best[i];
		}
	}
	knobs_set_threads(0);
	tap_ok(best[1] < 0.75 * best[0], "two threads take %.2f of what one does",
	       best[1] / best[0]);
	tap_ok(best[2] < 0.5 * best[0], "four threads take %.2f of it", best[2] / best[0]);
	tap_ok(pages_intact(&pages), "the memory is as it was");
	return tap_done();
}

// SPDX-License-Identifier: Apache-2.0
/* Async-fork: flights that end early, follow on one another, or are looked at from outside. */
#define _GNU_SOURCE
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "family.h"
#include "flight.h"
#include "knobs.h"
#include "pages.h"
#include "reaper.h"

#define TABLES 12
#define GROUP "/sys/fs/cgroup/forktail-flights/"

static struct pages pages;

/* A child that waits, then says by its exit status whether it has the memory of the fork. */
static struct child checker(void)
{
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		_exit(!pages_intact(&pages));
	}
	return child;
}

static bool was_killed(struct child *child)
{
	int status = 0;

	close(child->go);
	while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		tap_note("child %d was not killed but has status %#x", child->pid, status);
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static void counts(void)
{
	long flights = flight_count("flights");
	long done = flight_count("done");
	long copied = flight_count("parent_copied");

	flight_hold(FLIGHT_ALL);
	struct child child = checker();

	flight_await_hold();
	tap_ok(flight_get("marked") >= TABLES, "fork() leaves %ld tables, of %d at least",
	       flight_get("marked"), TABLES);
	for (size_t i = 0; i < 5; i++)
		for (size_t page = 0; page < 3; page++)
			pages_write(&pages, 20 + (2 * i + 1) * 512 + page);
	long by_parent = flight_count("parent_copied") - copied;

	flight_release();
	tap_ok(family_join(&child), "the child keeps the memory of the fork");
	/* Its stack, heap and libraries are in tables that are copied at once. */
	tap_ok(by_parent >= 5 && by_parent <= 8, "5 tables written to are %ld copies by the parent",
	       by_parent);
	tap_ok(flight_count("flights") == flights + 1 && flight_count("done") == done + 1,
	       "that was one flight, and it is done");
	tap_ok(flight_all_over(), "no table remains uncopied");
}

static void killed_children(void)
{
	static const long lefts[] = {FLIGHT_ALL, TABLES - 1, 3, 1};
	bool good = true;

	for (size_t i = 0; i < 4 * sizeof(lefts) / sizeof(*lefts); i++) {
		flight_hold(lefts[i % 4]);
		struct child child = checker();

		flight_await_hold();
		if (i >= 4)
			pages_write_random(&pages, 5 * i);
		if (i % 2)
			kill(child.pid, SIGKILL);
		else
			syscall(SYS_tgkill, child.pid, child.pid, SIGKILL);
		good = was_killed(&child) && good;
		good = flight_all_over() && pages_intact(&pages) && good;
		pages_write_random(&pages, 100);
		good = pages_intact(&pages) && good;
		flight_release();
	}
	tap_ok(good, "children killed with tables uncopied leave the parent as it was");
}

static void killed_any_time(void)
{
	bool good = true;

	for (int i = 0; i < 200; i++) {
		struct child child = checker();

		pages_write_random(&pages, i % 3);
		if (i % 4)
			usleep(pages_random(&pages, 2000));
		kill(child.pid, SIGKILL);
		good = was_killed(&child) && good;
		good = good && (i % 10 || pages_intact(&pages));
	}
	good = flight_all_over() && good;
	tap_ok(good && pages_intact(&pages), "so do 200 children killed at any moment");
}

/* The parent is a process that ends in some way while its child is held. */
static void parents_that_end(const char *how, void (*end)(void))
{
	int verdict[2];
	char byte = 1;
	bool good = true;

	for (long left = FLIGHT_ALL; left; left = left == FLIGHT_ALL ? 2 : 0) {
		if (pipe(verdict))
			tap_bail_out("pipe: %s", strerror(errno));
		pid_t parent = fork();

		if (parent == 0) {
			flight_hold(left);
			if (fork() == 0) {
				byte = !pages_intact(&pages);
				_exit(write(verdict[1], &byte, 1) != 1);
			}
			flight_await_hold();
			pages_write_random(&pages, 10);
			end();
		}
		waitpid(parent, NULL, 0);
		flight_release();
		close(verdict[1]);
		good = read(verdict[0], &byte, 1) == 1 && byte == 0 && good;
		close(verdict[0]);
	}
	tap_ok(good && flight_all_over(), "a child keeps its memory when its parent %s", how);
}

static void end_by_exit(void)
{
	_exit(0);
}

static void end_by_kill(void)
{
	kill(getpid(), SIGKILL);
}

static void end_by_exec(void)
{
	execl("/proc/self/exe", "flights", "nothing", NULL);
	_exit(1);
}

static void *sleep_on(void *unused)
{
	pause();
	return unused;
}

static void end_by_exec_of_a_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, sleep_on, NULL);
	end_by_exec();
}

static void consecutive(void)
{
	struct child children[10];
	bool good = true;

	for (int i = 0; i < 10; i++) {
		flight_hold(i % 2 ? 3 : FLIGHT_ALL);
		children[i] = checker();
		if (i % 3)
			flight_await_hold();
		pages_write_random(&pages, 10);
	}
	flight_release();
	for (int i = 0; i < 10; i++)
		good = family_join(&children[(i * 3) % 10]) && good;
	tap_ok(good && pages_intact(&pages), "ten forks, each before the last is copied");
}

static void failures(const char *who, long by)
{
	long aborted = flight_count("aborted");
	bool good = true;
	int failed = 0;

	for (int nth = 1; nth < 80; nth++) {
		long before = flight_count("failures");

		flight_set("fail_by", by);
		flight_set("fail_nth", nth);
		int ends[2];

		if (pipe(ends))
			tap_bail_out("pipe: %s", strerror(errno));
		pid_t pid = fork();

		if (pid == 0)
			_exit(!pages_intact(&pages));
		pages_write_random(&pages, 8);
		close(ends[0]);
		close(ends[1]);
		if (pid < 0) {
			tap_note("with allocation %d failing fork() fails", nth);
			good = false;
		} else {
			int status = -1;

			waitpid(pid, &status, 0);
			if (status && status != SIGKILL) {
				tap_note("with allocation %d failing the child has %#x", nth,
					 status);
				good = false;
			}
			failed += status == SIGKILL;
		}
		good = flight_all_over() && pages_intact(&pages) && good;
		flight_set("fail_nth", 0);
		if (flight_count("failures") == before)
			break;
	}
	flight_set("fail_by", 7);
	tap_ok(good && pages_intact(&pages),
	       "allocations of %s that fail: %d children died, no other harm", who, failed);
	tap_ok(flight_count("aborted") - aborted == failed, "each death was a flight that ended");
}

/* The parent itself cannot allocate when it has to copy. */
static void failures_of_the_parent(void)
{
	bool spent_any = false;
	bool good = true;

	for (int nth = 1; nth <= TABLES; nth++) {
		long before = flight_count("failures");

		flight_hold(FLIGHT_ALL);
		struct child child = checker();

		flight_await_hold();
		/* What the child has ready for itself is used up first. */
		flight_set("fail_by", FLIGHT_PARENT);
		flight_set("fail_nth", nth);
		pages_write_all(&pages);
		bool spent = flight_count("failures") > before;

		flight_set("fail_nth", 0);
		flight_set("fail_by", 7);
		good = pages_intact(&pages) && good;
		spent_any = spent_any || spent;
		flight_release();
		good = (spent ? was_killed(&child) : family_join(&child)) && good;
		good = flight_all_over() && good;
	}
	tap_ok(good && spent_any && pages_intact(&pages),
	       "a parent that cannot copy goes on, and the child is killed");
}

struct look {
	pid_t pid;
	size_t page;
	uint64_t found;
	ssize_t result;
};

static void *look_from_outside(void *argument)
{
	struct look *look = argument;
	struct iovec to = {&look->found, 8};
	struct iovec from = {pages.base + look->page * PAGE, 8};

	look->result = process_vm_readv(look->pid, &to, 1, &from, 1, 0);
	return NULL;
}

static void looks(bool killed)
{
	struct look look = {.page = 3 * 512 + 7};
	pthread_t thread;

	flight_hold(FLIGHT_ALL);
	struct child child = checker();

	flight_await_hold();
	look.pid = child.pid;
	uint64_t stamp = pages.stamps[look.page];

	pthread_create(&thread, NULL, look_from_outside, &look);
	usleep(200000);
	pages_write(&pages, look.page + 1);
	if (killed)
		kill(child.pid, SIGKILL);
	else
		flight_release();
	pthread_join(thread, NULL);
	if (killed) {
		flight_release();
		tap_ok(was_killed(&child) && look.result < 0,
		       "nothing is read from a child that will not be complete");
	} else {
		bool good = family_join(&child);

		tap_ok(good && look.result == 8 && look.found == stamp,
		       "who reads from a child waits until it is complete");
	}
}

static void traced(void)
{
	pid_t tracer = fork();

	if (tracer == 0) {
		flight_hold(2);
		pid_t pid = fork();

		if (pid == 0) {
			raise(SIGSTOP);
			_exit(!pages_intact(&pages));
		}
		flight_await_hold();
		if (ptrace(PTRACE_SEIZE, pid, NULL, NULL))
			_exit(2);
		flight_release();
		int status;

		waitpid(pid, &status, WUNTRACED);
		errno = 0;
		long word = ptrace(PTRACE_PEEKDATA, pid, pages.base + 20 * PAGE, NULL);

		if (errno || (uint64_t)word != pages.stamps[20] ||
		    ptrace(PTRACE_POKEDATA, pid, pages.base + 20 * PAGE, word))
			_exit(3);
		kill(pid, SIGCONT);
		ptrace(PTRACE_DETACH, pid, NULL, NULL);
		waitpid(pid, &status, 0);
		_exit(status ? 4 : pages_intact(&pages) ? 0 : 5);
	}
	int status = -1;

	waitpid(tracer, &status, 0);
	flight_release();
	tap_ok(status == 0, "a child can be traced as soon as there is one (%#x)", status);
}

static atomic_bool stop;

static void *fork_on(void *argument)
{
	bool *good = argument;

	while (!atomic_load(&stop)) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		if (pid < 0) {
			*good = false;
			break;
		}
		waitpid(pid, NULL, 0);
	}
	return NULL;
}

static void storm(void)
{
	pthread_t threads[3];
	bool good[3] = {true, true, true};
	bool all = true;

	for (int i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, fork_on, &good[i]);
	for (int i = 0; i < 60; i++) {
		struct child child = checker();

		pages_write_random(&pages, 20);
		all = family_join(&child) && all;
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 3; i++) {
		pthread_join(threads[i], NULL);
		all = all && good[i];
	}
	tap_ok(all && pages_intact(&pages) && flight_all_over(),
	       "four threads fork at the same time");
}

static void stay_on(const cpu_set_t *cpus)
{
	if (sched_setaffinity(0, sizeof(*cpus), cpus))
		tap_bail_out("sched_setaffinity: %s", strerror(errno));
}

/* What reaps memory cannot allocate, so it has to leave what is not copied. */
static void reaped_parents(void)
{
	cpu_set_t all;
	cpu_set_t first;
	bool good = true;

	sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&first);
	CPU_SET(0, &first);
	for (long left = FLIGHT_ALL; left; left = left == FLIGHT_ALL ? 5 : 0) {
		char byte = 0;
		int ends[2];

		if (pipe(ends))
			tap_bail_out("pipe: %s", strerror(errno));
		stay_on(&first);
		pid_t parent = fork();

		if (parent == 0) {
			flight_hold(left);
			if (fork() == 0) {
				byte = !pages_intact(&pages);
				_exit(write(ends[1], &byte, 1) != 1);
			}
			flight_await_hold();
			if (write(ends[1], &byte, 1) != 1)
				_exit(1);
			pause();
		}
		good = read(ends[0], &byte, 1) == 1 && good;
		good = reaper_kill(parent) && good;
		stay_on(&all);
		waitpid(parent, NULL, 0);
		flight_release();
		close(ends[1]);
		byte = 1;
		good = read(ends[0], &byte, 1) == 1 && byte == 0 && good;
		close(ends[0]);
	}
	tap_ok(good && flight_all_over() && pages_intact(&pages),
	       "a child keeps its memory when its parent is reaped");
}

static void reaped_children(void)
{
	cpu_set_t all;
	cpu_set_t first;
	bool good = true;

	sched_getaffinity(0, sizeof(all), &all);
	CPU_ZERO(&first);
	CPU_SET(0, &first);
	stay_on(&first);
	for (long left = FLIGHT_ALL; left; left = left == FLIGHT_ALL ? 5 : 0) {
		flight_hold(left);
		struct child child = checker();

		flight_await_hold();
		pages_write_random(&pages, 3);
		good = reaper_kill(child.pid) && good;
		pages_write_random(&pages, 10);
		good = was_killed(&child) && pages_intact(&pages) && good;
		flight_release();
	}
	stay_on(&all);
	tap_ok(good && flight_all_over(), "a parent keeps its memory when its child is reaped");
}

/* A swap entry that so many have needs more of a count than fits into a byte. */
static void swapped_out(void)
{
	struct child children[80];
	bool good = true;

	madvise(pages.base + 600 * PAGE, 40 * PAGE, MADV_PAGEOUT);
	for (size_t i = 0; i < sizeof(children) / sizeof(*children); i++)
		children[i] = checker();
	for (size_t i = 0; i < sizeof(children) / sizeof(*children); i++)
		good = family_join(&children[i]) && good;
	tap_ok(good && pages_intact(&pages), "eighty children of a parent that is swapped out");
}

/* The parent shrinks its heap, in the middle of a table, and lets it grow again. */
static void heap(void)
{
	size_t bytes = 4 * TABLE;
	char *base = sbrk((intptr_t)bytes);
	bool good = true;

	if (base == (void *)-1)
		tap_bail_out("brk: %s", strerror(errno));
	memset(base, 'x', bytes);
	flight_hold(FLIGHT_ALL);
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		for (size_t i = 0; i < bytes; i++)
			good = good && base[i] == 'x';
		_exit(!good);
	}
	flight_await_hold();
	if (sbrk(-(intptr_t)(bytes - TABLE - TABLE / 2)) == (void *)-1 ||
	    sbrk((intptr_t)(bytes - TABLE - TABLE / 2)) == (void *)-1)
		tap_bail_out("brk: %s", strerror(errno));
	for (size_t i = 0; i < bytes; i++)
		good = good && base[i] == (i < TABLE + TABLE / 2 ? 'x' : 0);
	memset(base, 'y', bytes);
	flight_release();
	good = family_join(&child) && good;
	sbrk(-(intptr_t)bytes);
	tap_ok(good && flight_all_over(), "a heap that shrinks and grows is the child's as it was");
}

/* Whoever has the userfaultfd could be given one of the child, and populate it. */
static void watched(void)
{
	struct uffdio_api api = {.api = UFFD_API};
	char *area = pages_map(NULL, 4 * PAGE);
	struct uffdio_register range = {.range = {(uintptr_t)area, 4 * PAGE},
					.mode = UFFDIO_REGISTER_MODE_MISSING};
	int watcher = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	long flights = flight_count("flights");

	if (watcher < 0 || ioctl(watcher, UFFDIO_API, &api) ||
	    ioctl(watcher, UFFDIO_REGISTER, &range))
		tap_bail_out("userfaultfd: %s", strerror(errno));
	struct child child = checker();
	bool good = family_join(&child);

	close(watcher);
	munmap(area, 4 * PAGE);
	tap_ok(good && flight_count("flights") == flights,
	       "a fork() that a userfaultfd watches copies everything");
}

/* The parent is killed for its memory, which the child keeps it from being rid of. */
static void parent_out_of_memory(void)
{
	const char *name = "a child of a parent that the OOM killer has ended is ended too";
	long aborted = flight_count("aborted");
	char byte = 0;
	int status = 0;
	int ends[2];

	rmdir(GROUP);
	mkdir(GROUP, 0755);
	if (!knobs_set(GROUP "memory.max", "64M") &&
	    !knobs_set(GROUP "memory.limit_in_bytes", "64M")) {
		rmdir(GROUP);
		tap_skip(name, "no memory cgroup can be limited");
		return;
	}
	if (!knobs_set(GROUP "memory.swap.max", "0"))
		knobs_set(GROUP "memory.swappiness", "0");
	if (pipe(ends))
		tap_bail_out("pipe: %s", strerror(errno));
	pid_t parent = fork();

	if (parent == 0) {
		knobs_set(GROUP "cgroup.procs", "0");
		struct pages own = pages_make(TABLES);

		flight_hold(FLIGHT_ALL);
		if (fork() == 0)
			_exit(write(ends[1], &byte, 1) != 1);
		flight_await_hold();
		knobs_set("/proc/self/oom_score_adj", "1000");
		/* All that was there at the fork, and is not copied, stays. */
		for (;;)
			memset(pages_map(NULL, TABLE), own.base[0] | 1, TABLE);
	}
	waitpid(parent, &status, 0);
	flight_release();
	close(ends[1]);
	bool silent = read(ends[0], &byte, 1) == 0;

	close(ends[0]);
	tap_ok(status == SIGKILL && silent && flight_all_over() &&
		   flight_count("aborted") == aborted + 1,
	       "%s", name);
	for (int i = 0; rmdir(GROUP) && i < 100; i++)
		usleep(10000);
}

static void no_flights_without_the_knob(void)
{
	tap_ok(flight_count("flights") == 0, "no fork() has been asynchronous");
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc == 2)
		return 0;
	if (!flight_possible("flights")) {
		if (getenv("ASYNC_FORK_FIRST") && access(FLIGHT_DEBUG "stat", R_OK) == 0)
			no_flights_without_the_knob();
		return tap_done();
	}
	pages = pages_make(TABLES);
	counts();
	killed_children();
	killed_any_time();
	parents_that_end("exits", end_by_exit);
	parents_that_end("is killed", end_by_kill);
	parents_that_end("runs another program", end_by_exec);
	parents_that_end("runs another program, from several threads", end_by_exec_of_a_thread);
	consecutive();
	failures("the parent in fork()", FLIGHT_PARENT);
	failures("the child", FLIGHT_CHILD);
	if (flight_threads() > 1)
		failures("the helpers", FLIGHT_HELPERS);
	failures("anyone", FLIGHT_PARENT | FLIGHT_CHILD | FLIGHT_HELPERS);
	failures_of_the_parent();
	traced();
	storm();
	looks(false);
	looks(true);
	reaped_parents();
	reaped_children();
	swapped_out();
	heap();
	watched();
	parent_out_of_memory();
	tap_ok(pages_intact(&pages), "the memory is as it was");
	return tap_done();
}

// SPDX-License-Identifier: Apache-2.0
/*
 * A process that is killed at a bad moment: by the OOM killer, with its memory reaped before it
 * could exit, or just anywhere. Its family keeps its memory.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "family.h"
#include "knobs.h"
#include "pages.h"
#include "reaper.h"

#define TABLES 4
#define GROUP "/sys/fs/cgroup/forktail-victims/"
#define LIMIT "48M"

static bool limit(void)
{
	/* Left over from another run it would not inherit what is set now. */
	rmdir(GROUP);
	mkdir(GROUP, 0755);
	knobs_set("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	knobs_set(GROUP "memory.swap.max", "0");
	if (knobs_set(GROUP "memory.max", LIMIT))
		return knobs_set(GROUP "memory.swap.max", "0");
	/* The older kind of cgroup. */
	return knobs_set(GROUP "memory.limit_in_bytes", LIMIT) &&
	       knobs_set(GROUP "memory.swappiness", "0");
}

/* Until the limit is hit; it is this process then that is killed. */
static void want_too_much(struct pages *pages)
{
	knobs_set("/proc/self/oom_score_adj", "1000");
	pages_write_all(pages);
	for (;;) {
		char *more = pages_map(NULL, TABLE);

		memset(more, 1, TABLE);
	}
}

static bool was_killed(pid_t pid)
{
	int status = 0;

	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/* In the group: the child wants too much, or the parent does while the child waits. */
static void oom(bool kill_parent)
{
	char verdict = 1;
	int ends[2];

	if (pipe(ends))
		tap_bail_out("pipe: %s", strerror(errno));
	struct child parent = family_fork();

	if (parent.pid == 0) {
		knobs_set(GROUP "cgroup.procs", "0");
		struct pages pages = pages_make(TABLES);
		struct child child = family_fork();

		if (child.pid == 0) {
			if (!kill_parent)
				want_too_much(&pages);
			/* The parent's end of the pipe closes as it dies. */
			close(ends[0]);
			family_wait(&child);
			bool good = pages_intact(&pages);

			pages_write_random(&pages, 100);
			verdict = !(pages_intact(&pages) && good);
			_exit(write(ends[1], &verdict, 1) != 1);
		}
		if (kill_parent)
			want_too_much(&pages);
		close(child.go);
		bool good = was_killed(child.pid) && pages_intact(&pages);

		pages_write_all(&pages);
		verdict = !(pages_intact(&pages) && good);
		_exit(write(ends[1], &verdict, 1) != 1);
	}
	close(parent.go);
	bool killed = was_killed(parent.pid);

	close(ends[1]);
	if (read(ends[0], &verdict, 1) != 1)
		verdict = 1;
	close(ends[0]);
	tap_ok(killed == kill_parent && verdict == 0,
	       "the OOM killer takes the %s and leaves the %s its memory",
	       kill_parent ? "parent" : "child", kill_parent ? "child" : "parent");
}

static void stay_on_first_cpu(void)
{
	cpu_set_t first;

	CPU_ZERO(&first);
	CPU_SET(0, &first);
	sched_setaffinity(0, sizeof(first), &first);
}

static void reap_child(void)
{
	struct pages pages = pages_make(TABLES);
	bool good = true;
	int reaped = 0;

	for (int i = 0; i < 20; i++) {
		struct child child = family_fork();

		if (child.pid == 0) {
			if (i % 2)
				pages_write_random(&pages, 5);
			pause();
		}
		if (i % 4 >= 2)
			pages_write_random(&pages, 5);
		usleep(20000);
		reaped += reaper_kill(child.pid);
		good = pages_intact(&pages) && good;
		close(child.go);
		waitpid(child.pid, NULL, 0);
		pages_write_random(&pages, 5);
		good = pages_intact(&pages) && good;
	}
	tap_ok(good && reaped == 20, "%d of 20 children reaped leave the parent its memory",
	       reaped);
	pages_unmake(&pages);
}

static void reap_parent(void)
{
	bool good = true;
	int reaped = 0;

	for (int i = 0; i < 10; i++) {
		char verdict = 1;
		int ends[2];

		if (pipe(ends))
			tap_bail_out("pipe: %s", strerror(errno));
		struct child parent = family_fork();

		if (parent.pid == 0) {
			struct pages pages = pages_make(TABLES);
			struct child child = family_fork();

			if (child.pid == 0) {
				family_wait(&child);
				good = pages_intact(&pages);
				pages_write_all(&pages);
				verdict = !(pages_intact(&pages) && good);
				_exit(write(ends[1], &verdict, 1) != 1);
			}
			if (i % 2)
				pages_write_random(&pages, 5);
			verdict = 0;
			if (write(ends[1], &verdict, 1) != 1)
				_exit(1);
			pause();
		}
		if (read(ends[0], &verdict, 1) != 1 || verdict)
			tap_bail_out("the parent did not begin");
		usleep(20000);
		reaped += reaper_kill(parent.pid);
		close(parent.go);
		waitpid(parent.pid, NULL, 0);
		verdict = 1;
		close(ends[1]);
		good = read(ends[0], &verdict, 1) == 1 && verdict == 0 && good;
		close(ends[0]);
	}
	tap_ok(good && reaped == 10, "%d of 10 parents reaped leave the child its memory", reaped);
}

static void kill_parents(void)
{
	bool good = true;

	for (int i = 0; i < 60; i++) {
		struct pages seed = {.seed = i * 7919 + 1};
		char verdict = 1;
		int ends[2];

		if (pipe(ends))
			tap_bail_out("pipe: %s", strerror(errno));
		struct child parent = family_fork();

		if (parent.pid == 0) {
			struct pages pages = pages_make(TABLES);

			for (;;) {
				pid_t pid = fork();

				if (pid == 0) {
					bool intact = pages_intact(&pages);

					pages_write_random(&pages, 20);
					verdict = !(pages_intact(&pages) && intact);
					_exit(write(ends[1], &verdict, 1) != 1);
				}
				pages_write_random(&pages, 20);
				if (waitpid(-1, NULL, WNOHANG) < 0)
					_exit(1);
			}
		}
		close(ends[1]);
		usleep(5000 + pages_random(&seed, 40000));
		kill(parent.pid, SIGKILL);
		close(parent.go);
		waitpid(parent.pid, NULL, 0);
		/* Every child that there was says that its memory was whole; the last one closes.
		 */
		while (read(ends[0], &verdict, 1) == 1)
			good = good && verdict == 0;
		close(ends[0]);
	}
	tap_ok(good, "60 parents killed at any moment leave their children the memory");
}

int main(void)
{
	kill_parents();
	stay_on_first_cpu();
	reap_child();
	reap_parent();
	if (limit()) {
		oom(false);
		oom(true);
	} else {
		tap_skip("the OOM killer, for the child", "no memory cgroup can be limited");
		tap_skip("the OOM killer, for the parent", "no memory cgroup can be limited");
	}
	return tap_done();
}

// SPDX-License-Identifier: Apache-2.0
#ifndef FORKTAIL_FLIGHT_H
#define FORKTAIL_FLIGHT_H

#include <fcntl.h>

#include "counters.h"

#define FLIGHT_DEBUG "/sys/kernel/debug/async_fork/"
#define FLIGHT_ALL 1000000L

/* Whose allocations fail. */
#define FLIGHT_PARENT 1
#define FLIGHT_CHILD 2
#define FLIGHT_HELPERS 4

/* The number of threads that copy after a fork() of this process, as its cgroup says. */
static inline long flight_threads(void)
{
	const char *threads = getenv("ASYNC_FORK");

	return threads ? atol(threads) : 0;
}

/* Whether there is something to test; else it is said why not. */
static inline bool flight_possible(const char *name)
{
	if (access(FLIGHT_DEBUG "stat", R_OK))
		tap_skip(name, "this kernel has no async-fork to be debugged");
	else if (flight_threads() == 0)
		tap_skip(name, "fork() is not asynchronous in this mode");
	else
		return true;
	return false;
}

static inline void flight_set(const char *name, long value)
{
	char path[128];
	int file;

	snprintf(path, sizeof(path), FLIGHT_DEBUG "%s", name);
	file = open(path, O_WRONLY);
	if (file < 0 || dprintf(file, "%ld\n", value) < 0)
		tap_bail_out("%s: %s", path, strerror(errno));
	close(file);
}

static inline long flight_get(const char *name)
{
	char path[128];
	long value = -1;
	FILE *file;

	snprintf(path, sizeof(path), FLIGHT_DEBUG "%s", name);
	file = fopen(path, "r");
	if (!file || fscanf(file, "%ld", &value) != 1)
		tap_bail_out("%s: %s", path, strerror(errno));
	fclose(file);
	return value;
}

static inline long flight_count(const char *name)
{
	return counters_read(FLIGHT_DEBUG "stat", name);
}

/* Children stop with so many tables left to copy, or go on. */
static inline void flight_hold(long left)
{
	flight_set("hold", left);
}

static inline void flight_release(void)
{
	flight_set("hold", -1);
}

/* Until a child has stopped. */
static inline void flight_await_hold(void)
{
	for (int i = 0; flight_get("waiting") == 0; i++) {
		if (i == 2000)
			tap_bail_out("no child stops");
		usleep(5000);
	}
}

/* Until no process has an uncopied table. */
static inline bool flight_all_over(void)
{
	for (int i = 0; i < 2000; i++) {
		if (flight_get("marked") == 0)
			return true;
		usleep(5000);
	}
	tap_note("%ld tables remain uncopied", flight_get("marked"));
	return false;
}

#endif

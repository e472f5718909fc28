// SPDX-License-Identifier: Apache-2.0
#ifndef FORKTAIL_KNOBS_H
#define FORKTAIL_KNOBS_H

#include <fcntl.h>
#include <stdbool.h>

#include "tap.h"

#define RMAP "/sys/module/odf/parameters/rmap"

/* Whether one of the kernel's files takes a value. */
static inline bool knobs_set(const char *path, const char *value)
{
	int file = open(path, O_WRONLY);
	bool done = file >= 0 && write(file, value, strlen(value)) > 0;

	if (file >= 0)
		close(file);
	return done;
}

/* Give one of the kernel's files, emptied, a value that it has to take. */
static inline void knobs_demand(const char *path, const char *value)
{
	int file = open(path, O_WRONLY | O_TRUNC);

	if (file < 0 || write(file, value, strlen(value)) < 0)
		tap_bail_out("%s cannot be set to %s: %s", path, value, strerror(errno));
	close(file);
}

/* Have so many threads copy after the forks of the caller's cgroup, none of them being fork() as it
 * is; false where the kernel does not know how. */
static inline bool knobs_set_threads(long threads)
{
	char path[256] = "/sys/fs/cgroup";
	char line[256] = "";
	FILE *file = fopen("/proc/self/cgroup", "r");

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, "0::", 3) == 0 || strstr(line, ":memory:"))
			break;
	if (file)
		fclose(file);
	line[strcspn(line, "\n")] = 0;
	snprintf(path + strlen(path), sizeof(path) - strlen(path), "%s/memory.async_fork",
		 strrchr(line, ':') + 1);
	snprintf(line, sizeof(line), "%ld", threads);
	return knobs_set(path, line);
}

/* The modes of odf.rmap that there are to test: one that says nothing where fork() shares nothing.
 */
static inline const char *const *knobs_rmap_modes(void)
{
	static const char *const all[] = {"refuse", "published", "flushall", NULL};
	static const char *const none[] = {"", NULL};
	char shares = '0';
	int file = open("/proc/self/use_odf", O_RDONLY);

	if (file < 0)
		return none;
	if (read(file, &shares, 1) != 1)
		shares = '0';
	close(file);
	return shares == '1' ? all : none;
}

/* Whether fork() leaves page tables to the child, as those who run this program have asked for. */
static inline bool knobs_async_fork(void)
{
	const char *threads = getenv("ASYNC_FORK");

	return threads && atoi(threads) > 0;
}

static inline void knobs_set_rmap(const char *mode)
{
	if (*mode && !knobs_set(RMAP, mode))
		tap_bail_out("odf.rmap cannot be set to %s: %s", mode, strerror(errno));
}

#endif

// SPDX-License-Identifier: Apache-2.0
#ifndef FORKTAIL_COUNTERS_H
#define FORKTAIL_COUNTERS_H

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tap.h"

/* Whether one of the kernel's files has a line that begins with the name. */
static inline bool counters_there(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	char line[256];
	bool there = false;

	while (file && !there && fgets(line, sizeof(line), file))
		there = strncmp(line, name, strlen(name)) == 0;
	if (file)
		fclose(file);
	return there;
}

/* The number after a name in one of the kernel's files. */
static inline long counters_read(const char *path, const char *name)
{
	FILE *file = fopen(path, "r");
	char line[256];
	long value = -1;

	if (!file)
		tap_bail_out("%s: %s", path, strerror(errno));
	while (value < 0 && fgets(line, sizeof(line), file))
		if (strncmp(line, name, strlen(name)) == 0)
			sscanf(line + strlen(name), "%*[: \t]%ld", &value);
	fclose(file);
	if (value < 0)
		tap_bail_out("%s has no %s", path, name);
	return value;
}

#endif

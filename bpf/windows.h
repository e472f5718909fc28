/* SPDX-License-Identifier: Apache-2.0 */
/* Tells of forks and of the ends of their windows, always in this order. */
#ifndef FORKTAIL_WINDOWS_H
#define FORKTAIL_WINDOWS_H

#include <stddef.h>
#include <stdint.h>

#include "probe.h"

#define MAX_WINDOWS 64

struct windows {
	uint64_t open[MAX_WINDOWS];
	size_t opened;
	/* A child can be gone before a server that lost its CPU has returned from the fork. */
	struct event early_end;
};

void windows_take(struct windows *windows, const struct event *event);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* For each measurement the ways to take it, best first. */
#ifndef FORKTAIL_CANDIDATES_H
#define FORKTAIL_CANDIDATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "probe.h"
#include "symbols.h"

/* One more than any candidate has: the list ends where there is no program. */
#define MAX_ATTACHMENTS 9
#define MAX_CANDIDATES (32 + 2 * MAX_SYMBOLS)

enum family {
	FAMILY_FEXIT,
	FAMILY_KPROBE,
	FAMILY_TP_BTF,
	FAMILY_RAW_TP,
	FAMILY_TP,
	FAMILIES,
};

/* How long the programs stay attached: system-call and allocation tracepoints slow every task. */
enum lifetime {
	ALWAYS,
	ARMED_TO_WINDOW_END,
	ARMED_TO_FORK,
};

extern const char *const family_names[FAMILIES];

/* A target of NULL is the one that the program's section names. */
struct attachment {
	const char *program;
	const char *target;
	uint64_t cookie;
};

/* The programs that see the end of a call come first: attached before those that see its start and
 * detached after them, they leave no call half seen. */
struct candidate {
	enum measurement measurement;
	enum family family;
	const char *where;
	const char *label;
	enum lifetime lifetime;
	/* Sees only what happens within a fault that is measured. */
	bool within_fault;
	/* Attaching proves nothing: a fork must show whether it fires. */
	bool fired_by_fork;
	struct attachment attachments[MAX_ATTACHMENTS];
};

struct candidates {
	struct candidate list[MAX_CANDIDATES];
	size_t count;
};

/* The candidates point into symbols, which must live as long. */
void candidates_fill(struct candidates *candidates, const struct symbols *symbols);

#endif

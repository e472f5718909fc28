/* SPDX-License-Identifier: Apache-2.0 */
/* Which probe takes each measurement on this kernel: found by trying them, best first. */
#ifndef FORKTAIL_CHAIN_H
#define FORKTAIL_CHAIN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "candidates.h"
#include "fail.h"
#include "gfp.h"
#include "json.h"
#include "link.h"

struct btf;
struct probe_bpf;

#define MAX_AVOIDED 16

struct chain_options {
	pid_t server;
	uint32_t buffer_bytes;
	uint64_t fault_min_ns;
	uint64_t run_queue_min_ns;
	bool measure[MEASUREMENTS];
	bool avoid[FAMILIES];
	/* Places, as candidates call them. */
	const char *avoided_places[MAX_AVOIDED];
	size_t avoided;
	struct symbols symbols;
};

struct rejection {
	const struct candidate *candidate;
	int error;
	const char *why;
};

struct choice {
	const struct candidate *candidate;
	struct link link;
};

struct chain {
	struct chain_options options;
	struct probe_bpf *bpf;
	struct btf *kernel;
	struct page_table_gfp gfp;
	struct candidates candidates;
	struct link tasks;
	struct choice choices[MEASUREMENTS];
	struct rejection rejections[MAX_CANDIDATES];
	size_t rejected;
	bool armed;
};

/* Loads the maps, tries the candidates and attaches what may stay. */
enum exit_code chain_open(struct chain *chain, const struct chain_options *options);
enum exit_code chain_arm(struct chain *chain);
/* The fork has come back: what was attached for it alone goes. */
void chain_forked(struct chain *chain);
/* Closes the gates, lets the calls under way come to their end and detaches the costly probes. */
void chain_disarm(struct chain *chain);
void chain_detach(struct chain *chain);
void chain_close(struct chain *chain);

/* Whether the window is the one that this child's fork opened. */
bool chain_watches_child(const struct chain *chain, uint64_t child);
bool chain_gate_is_open(const struct chain *chain);
int chain_events_fd(const struct chain *chain);
int chain_landmarks_fd(const struct chain *chain);
/* Sums over the CPUs; next_sequence, one a CPU, may be NULL. */
int chain_counts(const struct chain *chain, struct cpu_counts *sum, uint32_t *next_sequence);
int chain_cpus(void);
void chain_describe(const struct chain *chain, struct json *json);

#endif

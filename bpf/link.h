/* SPDX-License-Identifier: Apache-2.0 */
/* A candidate's programs, loaded in an object of their own and attached. */
#ifndef FORKTAIL_LINK_H
#define FORKTAIL_LINK_H

#include <sys/types.h>

#include "candidates.h"

struct bpf_link;
struct bpf_object;
struct btf;

struct link {
	struct bpf_object *object;
	struct bpf_link **attached;
	size_t count;
	/* How many of them, from the first, see the end of a call. */
	size_t ends;
	/* What failed, when a call returned an error. */
	const char *failed;
};

/* Loads the candidate's programs over the maps of core. Returns 0 or a negative errno. */
int link_load(struct link *link, const struct candidate *candidate, const struct btf *kernel,
	      const struct bpf_object *core);
int link_attach(struct link *link, const struct candidate *candidate, pid_t server);
void link_detach_starts(struct link *link);
void link_detach(struct link *link);
void link_unload(struct link *link);

#endif

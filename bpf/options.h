/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_OPTIONS_H
#define FORKTAIL_OPTIONS_H

#include <stdbool.h>

#include "chain.h"

struct options {
	const char *events_path;
	bool dry_run;
	bool strict;
	bool verbose;
	/* Help or the version has been printed: there is nothing more to do. */
	bool answered;
	struct chain_options chain;
};

enum exit_code options_read(struct options *options, int argc, char **argv);

#endif

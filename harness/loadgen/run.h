/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_RUN_H
#define FORKTAIL_RUN_H

#include "options.h"

/* Measures, writes the log, prints the summary; returns the exit code. */
int run(const struct options *options);

#endif

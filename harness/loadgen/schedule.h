/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_SCHEDULE_H
#define FORKTAIL_SCHEDULE_H

#include "options.h"

/* Prints what a run with these options would send, as tab-separated lines under a heading. */
int schedule(const struct options *options);

#endif

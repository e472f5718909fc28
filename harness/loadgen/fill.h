/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_FILL_H
#define FORKTAIL_FILL_H

#include "options.h"

/* SETs the keys 0 to keys - 1 in a closed loop; an error reply ends it. */
int fill(const struct options *options);

#endif

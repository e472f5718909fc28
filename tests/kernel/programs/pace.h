// SPDX-License-Identifier: Apache-2.0
#ifndef FORKTAIL_PACE_H
#define FORKTAIL_PACE_H

#include <stdlib.h>

/* How many of the rounds to make, PACE being a percentage: a kernel that checks every access and
 * every lock takes tens of times as long for each, and finds in the first ones what it finds. */
static inline int paced(int rounds)
{
	const char *percent = getenv("PACE");
	int fewer = percent ? rounds * atoi(percent) / 100 : rounds;

	return fewer > 0 ? fewer : 1;
}

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#include "stamp_clock.h"

#include "clock.h"

/* Many where every stamp depends on the result, few where it is only checked. */
#define READINGS_TO_OPEN 64
#define READINGS_TO_CHECK 3
#define PERIOD_NS (100 * NS_PER_MS)

struct distance {
	int64_t ahead;
	uint64_t error;
};

static int64_t nanoseconds(const struct timespec *time)
{
	return (int64_t)time->tv_sec * (int64_t)NS_PER_S + time->tv_nsec;
}

/* The narrowest of several brackets: the others were interrupted. */
static struct distance measure(int readings)
{
	struct distance best = {.error = UINT64_MAX};

	for (int i = 0; i < readings; i++) {
		struct timespec real;
		uint64_t before = clock_now();

		clock_gettime(CLOCK_REALTIME, &real);

		uint64_t bracket = clock_now() - before;

		if (bracket / 2 + 1 >= best.error)
			continue;
		best.error = bracket / 2 + 1;
		best.ahead = nanoseconds(&real) - (int64_t)(before + bracket / 2);
	}
	return best;
}

struct stamp_clock stamp_clock_open(void)
{
	struct distance distance = measure(READINGS_TO_OPEN);

	return (struct stamp_clock){
	    .ahead = distance.ahead,
	    .error = distance.error,
	    .next = clock_now() + PERIOD_NS,
	};
}

void stamp_clock_follow(struct stamp_clock *clock, uint64_t now)
{
	if (now < clock->next)
		return;
	clock->next = now + PERIOD_NS;

	struct distance distance = measure(READINGS_TO_CHECK);
	int64_t moved = distance.ahead - clock->ahead;

	/* Two measurements of one distance are within both errors; a change beyond is a step. */
	if ((uint64_t)(moved < 0 ? -moved : moved) <= distance.error + clock->error)
		return;
	clock->steps++;
	clock->ahead = distance.ahead;
	if (distance.error > clock->error)
		clock->error = distance.error;
}

uint64_t stamp_clock_monotonic(const struct stamp_clock *clock, const struct timespec *stamp)
{
	return (uint64_t)(nanoseconds(stamp) - clock->ahead);
}

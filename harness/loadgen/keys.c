/* SPDX-License-Identifier: Apache-2.0 */
#include "keys.h"

#include <math.h>

#define GOLDEN_RATIO 1.6180339887498949

/* memtier_benchmark writes numbers without leading zeros: all of these have eight digits. */
const struct key_names key_names[] = {
    [KEYS_OURS] = {"", 8, 16, 0, KEYS_MAX},
    [KEYS_MEMTIER] = {"", 8, 10, 10000000, 90000000},
    [KEYS_REDIS_BENCHMARK] = {"key:", 12, 10, 0, KEYS_MAX},
};

struct key_distribution keys_uniform(uint64_t keys)
{
	return (struct key_distribution){.shape = KEYS_UNIFORM, .keys = keys};
}

struct key_distribution keys_gaussian(uint64_t keys, double mean, double sigma)
{
	return (struct key_distribution){
	    .shape = KEYS_GAUSSIAN, .keys = keys, .mean = mean, .sigma = sigma};
}

/*
 * Zipf by rejection-inversion (Hormann and Derflinger, 1996): invert the area under the
 * continuous x^-theta, round to the nearest rank, and reject what the rounding added. The
 * quotients below stay exact as theta passes through 1, where the area becomes a logarithm.
 */
static double area(double theta, double x)
{
	double log_x = log(x), t = (1 - theta) * log_x;

	return fabs(t) < 1e-12 ? log_x : log_x * (expm1(t) / t);
}

static double area_inverse(double theta, double y)
{
	double t = (1 - theta) * y;

	return exp(fabs(t) < 1e-12 ? y : y * (log1p(fmax(t, -1)) / t));
}

static uint64_t greatest_common_divisor(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t remainder = a % b;

		a = b;
		b = remainder;
	}
	return a;
}

struct key_distribution keys_zipf(uint64_t keys, double theta)
{
	/* Steps of the golden section, coprime to the range: one key a rank, hot keys far apart. */
	uint64_t stride = (uint64_t)((double)keys / GOLDEN_RATIO) | 1;

	while (greatest_common_divisor(stride, keys) != 1)
		stride++;
	return (struct key_distribution){
	    .shape = KEYS_ZIPF,
	    .keys = keys,
	    .theta = theta,
	    .area_first = area(theta, 1.5) - 1,
	    .area_last = area(theta, (double)keys + 0.5),
	    .sure = 2 - area_inverse(theta, area(theta, 2.5) - pow(2, -theta)),
	    .stride = stride,
	};
}

static uint64_t draw_zipf(const struct key_distribution *d, struct random *random)
{
	for (;;) {
		double y = d->area_last + random_unit(random) * (d->area_first - d->area_last);
		double x = area_inverse(d->theta, y);
		double rank = fmin(fmax(floor(x + 0.5), 1), (double)d->keys);

		if (rank - x <= d->sure || y >= area(d->theta, rank + 0.5) - pow(rank, -d->theta))
			return ((uint64_t)rank - 1) * d->stride % d->keys;
	}
}

static uint64_t draw_gaussian(const struct key_distribution *d, struct random *random)
{
	for (;;) {
		double radius = sqrt(-2 * log1p(-random_unit(random)));
		double normal = radius * cos(2 * M_PI * random_unit(random));
		double x = d->mean + d->sigma * normal;

		/* Drawn again rather than clamped: a clamp would heap the tails on the end keys. */
		if (x >= 0 && x < 1)
			return (uint64_t)(x * (double)d->keys);
	}
}

uint64_t keys_draw(const struct key_distribution *distribution, struct random *random)
{
	switch (distribution->shape) {
	case KEYS_GAUSSIAN:
		return draw_gaussian(distribution, random);
	case KEYS_ZIPF:
		return draw_zipf(distribution, random);
	case KEYS_UNIFORM:
		break;
	}
	return random_below(random, distribution->keys);
}

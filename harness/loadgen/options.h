/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_OPTIONS_H
#define FORKTAIL_OPTIONS_H

#include "workload.h"

#include <stdint.h>

/* The value of an option that was left at "none". */
#define OPTION_NONE UINT64_MAX

enum command { COMMAND_FILL = 1, COMMAND_RUN = 2, COMMAND_SCHEDULE = 4 };

struct options {
	enum command command;
	const char *host;
	uint64_t port;
	double rate;
	uint64_t queries;
	uint64_t connections;
	uint64_t pipeline;
	uint64_t arrivals; /* enum arrival_process */
	uint64_t keys;
	uint64_t key_names;    /* enum key_naming */
	uint64_t distribution; /* enum key_shape */
	double gaussian_mean, gaussian_sigma;
	double zipf_theta;
	struct operation_ratio {
		uint64_t sets, gets;
	} ratio;
	uint64_t insert; /* a flag */
	uint64_t value_bytes;
	double value_entropy;
	uint64_t seed;
	uint64_t idle;
	uint64_t drain_ms;
	uint64_t spin_us;
	uint64_t fifo;
	uint64_t cpu;
	const char *log;
};

/* Reads the command line; says what is wrong with it and ends the process with code 2. */
struct options options_parse(int argc, char **argv);

/* What `run` asks of the server, by these options. */
struct workload options_workload(const struct options *options);

#endif

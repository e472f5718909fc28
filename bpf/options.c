// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "measurement.h"

#define MIB (1024 * 1024)
#define MAX_BUFFER_MIB 1024
#define NS_PER_US 1000

enum {
	OPTION_PID = 'p',
	OPTION_EVENTS = 'e',
	OPTION_MEASURE = 'm',
	OPTION_AVOID = 'a',
	OPTION_BUFFER = 'b',
	OPTION_HELP = 'h',
	OPTION_VERBOSE = 'v',
	OPTION_FAULT_MIN = 256,
	OPTION_RUN_QUEUE_MIN,
	OPTION_SYMBOLS,
	OPTION_STRICT,
	OPTION_DRY_RUN,
	OPTION_VERSION,
};

static const struct option long_options[] = {
    {"pid", required_argument, NULL, OPTION_PID},
    {"events", required_argument, NULL, OPTION_EVENTS},
    {"measure", required_argument, NULL, OPTION_MEASURE},
    {"avoid", required_argument, NULL, OPTION_AVOID},
    {"buffer-mib", required_argument, NULL, OPTION_BUFFER},
    {"fault-min-us", required_argument, NULL, OPTION_FAULT_MIN},
    {"run-queue-min-us", required_argument, NULL, OPTION_RUN_QUEUE_MIN},
    {"symbols", required_argument, NULL, OPTION_SYMBOLS},
    {"strict", no_argument, NULL, OPTION_STRICT},
    {"dry-run", no_argument, NULL, OPTION_DRY_RUN},
    {"verbose", no_argument, NULL, OPTION_VERBOSE},
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {0},
};

static const char help[] =
    "Usage: forktail-probe --pid PID --events FILE [options]\n"
    "       forktail-probe --dry-run [--pid PID]\n"
    "\n"
    "Records what the kernel does to a server while a snapshot is taken: its fork, the copy of "
    "the\n"
    "page tables, interruptions, write faults and run-queue delay, until the forked child is "
    "gone.\n"
    "Reads arm, disarm and stop on standard input and writes JSON lines to standard output.\n"
    "\n"
    "  -p, --pid PID             the server\n"
    "  -e, --events FILE         the event log to write\n"
    "  -m, --measure LIST        page_table_copy, interruption, fault, run_queue, rename, "
    "flight:\n"
    "                            which of these to take (all); fork and window_end always are\n"
    "  -a, --avoid LIST          probes not to be tried: fexit, kprobe, tp_btf, raw_tp, tp, or "
    "the\n"
    "                            function or tracepoint of one\n"
    "  -b, --buffer-mib N        ring buffer, a power of two (16)\n"
    "      --fault-min-us N      count shorter faults and do not record them (0)\n"
    "      --run-queue-min-us N  the same for run-queue delay (0)\n"
    "      --symbols FILE        the functions that copy page tables, best first (built in)\n"
    "      --strict              exit with 1 when any event was lost\n"
    "      --dry-run             print which probe would take each measurement, and end\n"
    "  -v, --verbose             show what libbpf and the verifier say\n"
    "  -h, --help\n"
    "      --version\n"
    "\n"
    "Example: (echo arm; sleep 10; echo stop) |\n"
    "           forktail-probe --pid \"$(pidof redis-server)\" --events events.bin\n"
    "\n"
    "Exit codes: 0 ok, 1 events were lost, 2 bad input, 3 the environment lacks something.\n";

static bool read_number(const char *text, unsigned long max, unsigned long *number)
{
	char *end;

	errno = 0;
	*number = strtoul(text, &end, 10);
	return !errno && end != text && !*end && *text >= '0' && *text <= '9' && *number <= max;
}

static bool read_names(char *list, const char *const *names, int count, bool *chosen)
{
	char *rest = NULL;

	for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		int i = 0;

		while (i < count && strcmp(name, names[i]) != 0)
			i++;
		if (i == count)
			return false;
		chosen[i] = true;
	}
	return true;
}

static enum exit_code read_measure(struct chain_options *chain, char *list)
{
	memset(chain->measure, 0, sizeof(chain->measure));
	chain->measure[MEASURE_FORK] = true;
	chain->measure[MEASURE_WINDOW_END] = true;
	if (!read_names(list, measurement_names, MEASUREMENTS, chain->measure))
		return fail(EXIT_BAD_INPUT,
			    "--measure knows fork, page_table_copy, interruption, fault, "
			    "run_queue, window_end, rename and flight, separated by commas.");
	return EXIT_OK;
}

/* Families are known here; whether a place is one can be said when --symbols is read too. */
static enum exit_code read_avoid(struct chain_options *chain, char *list)
{
	char *rest = NULL;

	for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		int family = 0;

		while (family < FAMILIES && strcmp(name, family_names[family]) != 0)
			family++;
		if (family < FAMILIES)
			chain->avoid[family] = true;
		else if (chain->avoided < MAX_AVOIDED)
			chain->avoided_places[chain->avoided++] = name;
		else
			return fail(EXIT_BAD_INPUT,
				    "--avoid takes at most %d functions and "
				    "tracepoints.",
				    MAX_AVOIDED);
	}
	return EXIT_OK;
}

static enum exit_code check_avoided(const struct chain_options *chain)
{
	static struct candidates candidates;

	candidates_fill(&candidates, &chain->symbols);
	for (size_t i = 0; i < chain->avoided; i++) {
		size_t known = 0;

		while (known < candidates.count &&
		       strcmp(chain->avoided_places[i], candidates.list[known].where) != 0)
			known++;
		if (known == candidates.count)
			return fail(EXIT_BAD_INPUT,
				    "--avoid knows fexit, kprobe, tp_btf, raw_tp, tp and the "
				    "functions and tracepoints that --dry-run names, and not '%s'.",
				    chain->avoided_places[i]);
	}
	return EXIT_OK;
}

static enum exit_code read_minimum(const char *name, const char *text, uint64_t *minimum_ns)
{
	unsigned long number;

	if (!read_number(text, UINT_MAX, &number))
		return fail(EXIT_BAD_INPUT, "--%s wants whole microseconds and not '%s'.", name,
			    text);
	*minimum_ns = (uint64_t)number * NS_PER_US;
	return EXIT_OK;
}

static enum exit_code read_symbols(struct symbols *symbols, const char *path)
{
	int error = symbols_read(symbols, path);

	if (error < 0)
		return fail(EXIT_BAD_INPUT, "--symbols: %s: %s.", path, strerror(-error));
	if (error > 0)
		return fail(EXIT_BAD_INPUT,
			    "--symbols: %s, line %d: write 'symbol place label', with a place "
			    "from 0 to %d, and at most %d of them.",
			    path, error, SYMBOL_PLACES, MAX_SYMBOLS);
	return EXIT_OK;
}

static enum exit_code read_option(struct options *options, int option, char *argument)
{
	struct chain_options *chain = &options->chain;
	unsigned long number;

	switch (option) {
	case OPTION_PID:
		if (!read_number(argument, INT_MAX, &number) || !number)
			return fail(EXIT_BAD_INPUT, "--pid wants a process id and not '%s'.",
				    argument);
		chain->server = (pid_t)number;
		return EXIT_OK;
	case OPTION_EVENTS:
		options->events_path = argument;
		return EXIT_OK;
	case OPTION_MEASURE:
		return read_measure(chain, argument);
	case OPTION_AVOID:
		return read_avoid(chain, argument);
	case OPTION_BUFFER:
		if (!read_number(argument, MAX_BUFFER_MIB, &number) || !number ||
		    number & (number - 1))
			return fail(EXIT_BAD_INPUT,
				    "--buffer-mib wants a power of two up to %d and not '%s'.",
				    MAX_BUFFER_MIB, argument);
		chain->buffer_bytes = (uint32_t)(number * MIB);
		return EXIT_OK;
	case OPTION_FAULT_MIN:
		return read_minimum("fault-min-us", argument, &chain->fault_min_ns);
	case OPTION_RUN_QUEUE_MIN:
		return read_minimum("run-queue-min-us", argument, &chain->run_queue_min_ns);
	case OPTION_SYMBOLS:
		return read_symbols(&chain->symbols, argument);
	case OPTION_STRICT:
		options->strict = true;
		return EXIT_OK;
	case OPTION_DRY_RUN:
		options->dry_run = true;
		return EXIT_OK;
	case OPTION_VERBOSE:
		options->verbose = true;
		return EXIT_OK;
	case OPTION_HELP:
		fputs(help, stdout);
		options->answered = true;
		return EXIT_OK;
	case OPTION_VERSION:
		puts("forktail-probe " FORKTAIL_VERSION);
		options->answered = true;
		return EXIT_OK;
	default:
		/* getopt has said what is wrong. */
		return EXIT_BAD_INPUT;
	}
}

enum exit_code options_read(struct options *options, int argc, char **argv)
{
	enum exit_code code;
	int option;

	memset(options, 0, sizeof(*options));
	options->chain.buffer_bytes = 16 * MIB;
	symbols_read(&options->chain.symbols, NULL);
	for (int m = 0; m < MEASUREMENTS; m++)
		options->chain.measure[m] = true;
	while ((option = getopt_long(argc, argv, "p:e:m:a:b:hv", long_options, NULL)) != -1) {
		code = read_option(options, option, optarg);
		if (code || options->answered)
			return code;
	}
	if (optind < argc)
		return fail(EXIT_BAD_INPUT, "'%s' is no option: see --help.", argv[optind]);
	code = check_avoided(&options->chain);
	if (code || options->dry_run)
		return code;
	if (!options->chain.server)
		return fail(EXIT_BAD_INPUT, "which server is missing: give --pid PID.");
	if (!options->events_path)
		return fail(EXIT_BAD_INPUT, "where to write is missing: give --events FILE.");
	return EXIT_OK;
}

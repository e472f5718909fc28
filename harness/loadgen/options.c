/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include "arrivals.h"
#include "fail.h"
#include "idle.h"
#include "query_log.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option_type { TEXT, COUNT, REAL, CHOICE, RATIO, FLAG };

struct option_spec {
	const char *name;
	unsigned int commands;
	enum option_type type;
	size_t offset;
	const char *preset; /* null where the option must be given */
	double least, most;
	const char *choices[4]; /* in the order of their enum */
	const char *help;
};

#define FILL COMMAND_FILL
#define RUN COMMAND_RUN
#define SCHEDULE COMMAND_SCHEDULE
#define AT(field) offsetof(struct options, field)

static const struct option_spec specs[] = {
    {"host", FILL | RUN, TEXT, AT(host), "127.0.0.1", .help = "the server's IPv4 or IPv6 address"},
    {"port", FILL | RUN, COUNT, AT(port), NULL, 1, 65535, .help = "the server's TCP port"},
    {"rate", RUN | SCHEDULE, REAL, AT(rate), NULL, 1e-3, 1e8, .help = "queries a second, in total"},
    {"queries", RUN | SCHEDULE, COUNT, AT(queries), NULL, 1, 1e12, .help = "how many to schedule"},
    {"connections", FILL, COUNT, AT(connections), "4", 1, CONNECTIONS_MAX,
     .help = "connections that share the keys"},
    {"connections", RUN, COUNT, AT(connections), NULL, 1, CONNECTIONS_MAX,
     .help = "connections, which take the queries in turn"},
    {"connections", SCHEDULE, COUNT, AT(connections), "1", 1, CONNECTIONS_MAX,
     .help = "connections, which take the queries in turn"},
    {"pipeline", FILL, COUNT, AT(pipeline), "64", 1, 1e6,
     .help = "requests outstanding on a connection"},
    {"arrivals", RUN | SCHEDULE, CHOICE, AT(arrivals), "constant",
     .choices = {"constant", "poisson"}, .help = "constant or poisson"},
    {"keys", FILL, COUNT, AT(keys), NULL, 1, KEYS_MAX, .help = "writes the keys 0 to N - 1"},
    {"key-names", FILL, CHOICE, AT(key_names), "ours",
     .choices = {"ours", "memtier", "redis-benchmark"},
     .help = "ours, memtier or redis-benchmark: whose keys to write"},
    {"keys", RUN | SCHEDULE, COUNT, AT(keys), NULL, 1, KEYS_MAX,
     .help = "the key range, as filled"},
    {"distribution", RUN | SCHEDULE, CHOICE, AT(distribution), "uniform",
     .choices = {"uniform", "gaussian", "zipf"}, .help = "uniform, gaussian or zipf"},
    {"gaussian-mean", RUN | SCHEDULE, REAL, AT(gaussian_mean), "0.5", 0, 1,
     .help = "as a fraction of the key range"},
    {"gaussian-sigma", RUN | SCHEDULE, REAL, AT(gaussian_sigma), "0.125", 1e-9, 1,
     .help = "as a fraction of the key range"},
    {"zipf-theta", RUN | SCHEDULE, REAL, AT(zipf_theta), "0.99", 1e-3, 10,
     .help = "the exponent; hot keys are spread over the range"},
    {"ratio", RUN | SCHEDULE, RATIO, AT(ratio), "1:0", .help = "SET:GET"},
    {"insert", RUN | SCHEDULE, FLAG, AT(insert), "0",
     .help = "SET keys from N upward, that are new, instead of overwriting"},
    {"value-bytes", FILL | RUN, COUNT, AT(value_bytes), NULL, 1, 512 << 20,
     .help = "of each value"},
    {"value-entropy", FILL | RUN, REAL, AT(value_entropy), "1", 0, 1,
     .help = "the fraction of a value's bytes that are random"},
    {"seed", FILL | RUN | SCHEDULE, COUNT, AT(seed), "1", 0, 0x1p63,
     .help = "the same seed gives the same queries at the same times"},
    {"idle", RUN, COUNT, AT(idle), "0", 0, IDLE_MAX,
     .help = "queries to send one by one before the load, for idle_us"},
    {"drain-ms", RUN, COUNT, AT(drain_ms), "5000", 0, 3.6e6,
     .help = "how long to wait for the last replies"},
    {"spin-us", RUN, COUNT, AT(spin_us), "0", 0, 1e6,
     .help = "poll instead of sleeping when a query is due this soon"},
    {"fifo", RUN, COUNT, AT(fifo), "none", 1, 99,
     .help = "run under SCHED_FIFO; keep the server off its CPU"},
    {"cpu", RUN, COUNT, AT(cpu), "none", 0, 1023, .help = "stay on this CPU"},
    {"log", RUN, TEXT, AT(log), NULL, .help = "the query log to write"},
};

#define SPECS (sizeof(specs) / sizeof(specs[0]))

static const struct {
	enum command command;
	const char *name, *summary, *example;
} commands[] = {
    {FILL, "fill", "Write the keys 0 to N - 1, as fast as the server takes them.",
     "forktail-load fill --port 6379 --keys 1000000 --value-bytes 1024"},
    {RUN, "run",
     "Send queries when they are due, whatever is outstanding, and log each one.\n"
     "Ends when all are scheduled, on a line `stop` or the end of standard input,\n"
     "on SIGINT or SIGTERM. Standard input is left alone if it is a file or /dev/null.",
     "forktail-load run --port 6379 --rate 50000 --queries 500000 --connections 50 \\\n"
     "                --keys 1000000 --value-bytes 1024 --log queries.bin"},
    {SCHEDULE, "schedule",
     "Print the intended time and the key of each query, without sending any.",
     "forktail-load schedule --rate 50000 --queries 10 --keys 1000000 --arrivals poisson"},
};

#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

static void print_usage(void)
{
	printf("usage: forktail-load COMMAND [--OPTION VALUE]...\n\n"
	       "Open-loop load for Redis and its kin. Latency counts from the intended time.\n\n");
	for (size_t i = 0; i < COMMANDS; i++)
		printf("  %-9s %.*s\n", commands[i].name, (int)strcspn(commands[i].summary, "\n"),
		       commands[i].summary);
	printf("\nforktail-load COMMAND --help tells its options; --version the version.\n\n"
	       "example: %s\n",
	       commands[1].example);
}

static void print_help(size_t command)
{
	printf("usage: forktail-load %s [--OPTION VALUE]...\n\n%s\n\n", commands[command].name,
	       commands[command].summary);
	for (size_t i = 0; i < SPECS; i++) {
		if (!(specs[i].commands & commands[command].command))
			continue;
		printf("  --%-15s %s", specs[i].name, specs[i].help);
		if (!specs[i].preset)
			printf(" (required)");
		else if (specs[i].type != FLAG)
			printf(" (%s)", specs[i].preset);
		printf("\n");
	}
	printf("\nexample: %s\n", commands[command].example);
}

static uint64_t parse_count(const struct option_spec *spec, const char *text)
{
	char *end;

	if (spec->preset && !strcmp(spec->preset, "none") && !strcmp(text, "none"))
		return OPTION_NONE;

	errno = 0;

	unsigned long long value = strtoull(text, &end, 10);

	/* strtoull would take "-1" for a huge number. */
	if (text[0] < '0' || text[0] > '9' || *end || errno || (double)value < spec->least ||
	    (double)value > spec->most)
		fail(EXIT_BAD_INPUT, "--%s must be a whole number from %.0f to %.0f, not '%s'",
		     spec->name, spec->least, spec->most, text);
	return value;
}

static double parse_real(const struct option_spec *spec, const char *text)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !(value >= spec->least && value <= spec->most))
		fail(EXIT_BAD_INPUT, "--%s must be a number from %g to %g, not '%s'", spec->name,
		     spec->least, spec->most, text);
	return value;
}

static uint64_t parse_choice(const struct option_spec *spec, const char *text)
{
	for (uint64_t i = 0; spec->choices[i]; i++)
		if (!strcmp(text, spec->choices[i]))
			return i;
	fail(EXIT_BAD_INPUT, "--%s must be %s, not '%s'", spec->name, spec->help, text);
}

static struct operation_ratio parse_ratio(const struct option_spec *spec, const char *text)
{
	unsigned int sets, gets;
	int length = 0;

	if (strspn(text, "0123456789:") != strlen(text) ||
	    sscanf(text, "%6u:%6u%n", &sets, &gets, &length) != 2 || text[length] ||
	    (sets == 0 && gets == 0))
		fail(EXIT_BAD_INPUT,
		     "--%s must be SET:GET in whole numbers, such as 1:10, not '%s'", spec->name,
		     text);
	return (struct operation_ratio){sets, gets};
}

static void assign(struct options *options, const struct option_spec *spec, const char *text)
{
	void *field = (char *)options + spec->offset;

	switch (spec->type) {
	case TEXT:
		if (!*text)
			fail(EXIT_BAD_INPUT, "--%s must not be empty", spec->name);
		*(const char **)field = text;
		break;
	case COUNT:
		*(uint64_t *)field = parse_count(spec, text);
		break;
	case REAL:
		*(double *)field = parse_real(spec, text);
		break;
	case CHOICE:
		*(uint64_t *)field = parse_choice(spec, text);
		break;
	case RATIO:
		*(struct operation_ratio *)field = parse_ratio(spec, text);
		break;
	case FLAG:
		*(uint64_t *)field = *text != '0';
		break;
	}
}

static size_t find_command(const char *name)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (!strcmp(name, commands[i].name))
			return i;
	fail(EXIT_BAD_INPUT, "unknown command '%s'; it is fill, run or schedule", name);
}

/* What getopt_long tells by an index below SPECS, and by these. */
enum { HELP = SPECS };

static void check_together(const struct options *options)
{
	uint64_t last = options->insert ? options->queries : 0;

	if (options->keys + last > KEYS_MAX)
		fail(EXIT_BAD_INPUT,
		     "--keys and the inserted --queries together exceed the %llu keys there are",
		     KEYS_MAX);
	if (options->keys > key_names[options->key_names].most)
		fail(EXIT_BAD_INPUT, "--keys must be %" PRIu64 " at most with these --key-names",
		     key_names[options->key_names].most);
}

struct options options_parse(int argc, char **argv)
{
	if (argc >= 2 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		print_usage();
		exit(EXIT_SUCCESS);
	}
	if (argc >= 2 && !strcmp(argv[1], "--version")) {
		printf("forktail-load %s\n", FORKTAIL_LOAD_VERSION);
		exit(EXIT_SUCCESS);
	}
	if (argc < 2)
		fail(EXIT_BAD_INPUT, "a command is missing: fill, run or schedule (see --help)");

	size_t command = find_command(argv[1]);
	struct options options = {.command = commands[command].command};
	struct option long_options[SPECS + 2] = {{"help", no_argument, NULL, HELP}};
	bool given[SPECS] = {false};
	int used = 1;

	for (size_t i = 0; i < SPECS; i++)
		if (specs[i].commands & options.command)
			long_options[used++] = (struct option){
			    specs[i].name,
			    specs[i].type == FLAG ? no_argument : required_argument,
			    NULL,
			    (int)i,
			};

	for (;;) {
		int chosen = getopt_long(argc - 1, argv + 1, ":h", long_options, NULL);

		if (chosen == -1)
			break;
		if (chosen == HELP || chosen == 'h') {
			print_help(command);
			exit(EXIT_SUCCESS);
		}
		if (chosen == ':')
			fail(EXIT_BAD_INPUT, "%s needs a value", argv[optind]);
		if (chosen == '?')
			fail(EXIT_BAD_INPUT, "%s is no option of %s (see forktail-load %s --help)",
			     argv[optind], argv[1], argv[1]);
		assign(&options, &specs[chosen], optarg ? optarg : "1");
		given[chosen] = true;
	}
	if (optind < argc - 1)
		fail(EXIT_BAD_INPUT, "'%s' is no option", argv[optind + 1]);

	for (size_t i = 0; i < SPECS; i++) {
		if (given[i] || !(specs[i].commands & options.command))
			continue;
		if (!specs[i].preset)
			fail(EXIT_BAD_INPUT, "--%s is required", specs[i].name);
		assign(&options, &specs[i], specs[i].preset);
	}
	check_together(&options);
	return options;
}

static struct key_distribution distribution_of(const struct options *options)
{
	switch (options->distribution) {
	case KEYS_GAUSSIAN:
		return keys_gaussian(options->keys, options->gaussian_mean,
				     options->gaussian_sigma);
	case KEYS_ZIPF:
		return keys_zipf(options->keys, options->zipf_theta);
	default:
		return keys_uniform(options->keys);
	}
}

struct workload options_workload(const struct options *options)
{
	return (struct workload){
	    .seed = options->seed,
	    .sets = options->ratio.sets,
	    .gets = options->ratio.gets,
	    .keys = distribution_of(options),
	    .sequential = options->insert,
	    .first_key = options->keys,
	};
}

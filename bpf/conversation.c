// SPDX-License-Identifier: Apache-2.0
#include "conversation.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "measurement.h"
#include "server.h"

static enum command command_of(const char *line)
{
	if (strcmp(line, "arm") == 0)
		return COMMAND_ARM;
	if (strcmp(line, "disarm") == 0)
		return COMMAND_DISARM;
	if (strcmp(line, "stop") == 0)
		return COMMAND_STOP;
	return COMMAND_UNKNOWN;
}

enum command conversation_read(struct conversation *conversation)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

	while (poll(&input, 1, 0) > 0) {
		char c;
		ssize_t got = read(STDIN_FILENO, &c, 1);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return COMMAND_END_OF_INPUT;
		if (c == '\n') {
			conversation->line[conversation->length] = '\0';
			conversation->length = 0;
			return command_of(conversation->line);
		}
		if (conversation->length + 1 < sizeof(conversation->line))
			conversation->line[conversation->length++] = c;
	}
	return COMMAND_NONE;
}

static struct json open_line(void)
{
	struct json json = {.out = stdout};

	json_open_object(&json, NULL);
	return json;
}

static struct json open_event(const char *name)
{
	struct json json = open_line();

	json_string(&json, "event", name);
	return json;
}

static void close_line(struct json *json)
{
	json_close_object(json);
	fputc('\n', json->out);
	fflush(json->out);
}

static void write_boot_id(struct json *json)
{
	char id[64] = "";
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");

	if (file) {
		if (fgets(id, sizeof(id), file))
			id[strcspn(id, "\n")] = '\0';
		fclose(file);
	}
	json_string(json, "boot_id", id);
}

static void write_header(struct json *json, const struct chain *chain, uint64_t attach_ns)
{
	pid_t ids[MAX_PID_NAMESPACES];
	int count = server_namespace_ids(chain->options.server, ids);
	struct utsname kernel;

	uname(&kernel);
	json_string(json, "schema", "forktail.events/1");
	json_string(json, "kernel", kernel.release);
	write_boot_id(json);
	json_string(json, "clock", "CLOCK_MONOTONIC");
	json_integer(json, "pid", chain->options.server);
	json_open_array(json, "namespace_pids");
	for (int i = 0; i < count; i++)
		json_integer(json, NULL, ids[i]);
	json_close_array(json);
	json_unsigned(json, "attach_ns", attach_ns);
	chain_describe(chain, json);
}

void say_header(const struct chain *chain, uint64_t attach_ns)
{
	struct json json = open_line();

	write_header(&json, chain, attach_ns);
	close_line(&json);
}

void say_ready(const struct chain *chain, uint64_t attach_ns)
{
	struct json json = open_event("ready");

	json_open_object(&json, "header");
	write_header(&json, chain, attach_ns);
	json_close_object(&json);
	close_line(&json);
}

void say_armed(uint64_t from, uint64_t now)
{
	struct json json = open_event("armed");

	json_unsigned(&json, "from_ns", from);
	json_unsigned(&json, "t_ns", now);
	close_line(&json);
}

void say_disarmed(uint64_t now)
{
	struct json json = open_event("disarmed");

	json_unsigned(&json, "t_ns", now);
	close_line(&json);
}

void say_fork(const struct event *event)
{
	struct json json = open_event("fork");

	json_unsigned(&json, "start_ns", event->start_ns);
	json_unsigned(&json, "duration_ns", event->duration_ns);
	json_unsigned(&json, "child", event->aux);
	close_line(&json);
}

void say_fork_unmeasured(const struct event *event)
{
	struct json json = open_event("fork_unmeasured");

	json_unsigned(&json, "t_ns", event->start_ns);
	json_unsigned(&json, "child", event->aux);
	close_line(&json);
}

void say_window_end(const struct event *event)
{
	struct json json = open_event("window_end");

	json_unsigned(&json, "t_ns", event->start_ns);
	json_unsigned(&json, "child", event->context);
	close_line(&json);
}

static void write_event_counts(struct json *json, const char *key,
			       const struct event_counts *counts)
{
	json_open_object(json, key);
	json_unsigned(json, "seen", counts->seen);
	json_unsigned(json, "emitted", counts->emitted);
	json_unsigned(json, "dropped", counts->dropped);
	json_unsigned(json, "suppressed", counts->suppressed);
	json_close_object(json);
}

static struct event_counts total_of(const struct cpu_counts *counts)
{
	struct event_counts total = {0};

	for (int kind = EVENT_FORK; kind < EVENT_KINDS; kind++) {
		total.seen += counts->events[kind].seen;
		total.emitted += counts->events[kind].emitted;
		total.dropped += counts->events[kind].dropped;
		total.suppressed += counts->events[kind].suppressed;
	}
	return total;
}

static int64_t write_unmatched(struct json *json, const struct chain *chain,
			       const struct cpu_counts *counts)
{
	int64_t total = 0;

	json_open_object(json, "unmatched");
	for (int m = 0; m < MEASUREMENTS; m++) {
		int64_t unmatched = (int64_t)(counts->entries[m] - counts->exits[m]);

		if (!chain->choices[m].candidate)
			continue;
		json_integer(json, measurement_names[m], unmatched);
		total += unmatched;
	}
	json_close_object(json);
	return total;
}

static void write_sequences(struct json *json, const uint32_t *next_sequence)
{
	json_open_array(json, "next_sequence");
	for (int cpu = 0; cpu < chain_cpus(); cpu++)
		json_unsigned(json, NULL, next_sequence[cpu]);
	json_close_array(json);
}

struct losses say_end(const struct chain *chain, uint64_t records, uint64_t end_ns,
		      const char *reason)
{
	struct json json = open_event("end");
	struct cpu_counts counts;
	struct event_counts total;
	struct losses losses;
	uint32_t *next_sequence = calloc((size_t)chain_cpus(), sizeof(*next_sequence));

	chain_counts(chain, &counts, next_sequence);
	total = total_of(&counts);
	losses.dropped = total.dropped;
	json_open_object(&json, "trailer");
	write_event_counts(&json, "events", &total);
	json_open_object(&json, "by_kind");
	for (int kind = EVENT_FORK; kind < EVENT_KINDS; kind++)
		write_event_counts(&json, event_kind_names[kind], &counts.events[kind]);
	json_close_object(&json);
	losses.unmatched = write_unmatched(&json, chain, &counts);
	if (next_sequence)
		write_sequences(&json, next_sequence);
	json_unsigned(&json, "records", records);
	json_string(&json, "reason", reason);
	json_unsigned(&json, "end_ns", end_ns);
	json_close_object(&json);
	close_line(&json);
	free(next_sequence);
	return losses;
}

// SPDX-License-Identifier: Apache-2.0
#include "chain.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "measurement.h"
#include "probe.skel.h"
#include "server.h"
#include "tracefs.h"
#include "trial.h"

#define DRAIN_STEP_NS 5000000
#define DRAIN_STEPS 200

/* Which threads and children the server has: needed by every measurement. */
static const struct candidate task_watch = {
    .family = FAMILY_TP_BTF,
    .where = "task_newtask",
    .label = "",
    .attachments = {{"task_exited", NULL, 0}, {"child_born", NULL, 0}},
};

static enum exit_code load_maps(struct chain *chain)
{
	const struct chain_options *options = &chain->options;
	struct bpf_program *program;
	int error;

	chain->bpf = probe_bpf__open();
	if (!chain->bpf)
		return fail(EXIT_NO_ENVIRONMENT, "the BPF object cannot be opened: %s.",
			    strerror(errno));
	bpf_object__for_each_program(program, chain->bpf->obj)
	    bpf_program__set_autoload(program, false);
	bpf_map__set_max_entries(chain->bpf->maps.events, options->buffer_bytes);
	chain->bpf->rodata->server_tgid = (uint32_t)options->server;
	chain->bpf->rodata->min_duration_ns[EVENT_FAULT] = options->fault_min_ns;
	chain->bpf->rodata->min_duration_ns[EVENT_RUN_QUEUE] = options->run_queue_min_ns;
	chain->bpf->rodata->page_table_gfp_set = chain->gfp.set;
	chain->bpf->rodata->page_table_gfp_clear = chain->gfp.clear;
	error = probe_bpf__load(chain->bpf);
	if (error)
		return fail(EXIT_NO_ENVIRONMENT,
			    "the kernel refuses the BPF maps (%s): run as root, with "
			    "CAP_BPF and CAP_PERFMON, and see --verbose.",
			    strerror(-error));
	return EXIT_OK;
}

static int add_thread(pid_t tid, void *context)
{
	const struct chain *chain = context;
	const struct thread empty = {0};

	if (tid == chain->options.server ||
	    !bpf_map_update_elem(bpf_map__fd(chain->bpf->maps.threads), &tid, &empty,
				 BPF_NOEXIST) ||
	    errno == EEXIST)
		return 0;
	return -errno;
}

static enum exit_code watch_tasks(struct chain *chain)
{
	int error = link_load(&chain->tasks, &task_watch, chain->kernel, chain->bpf->obj);

	if (!error)
		error = link_attach(&chain->tasks, &task_watch, chain->options.server);
	if (error)
		return fail(EXIT_NO_ENVIRONMENT,
			    "the tracepoints task_newtask and sched_process_exit cannot be "
			    "attached (%s): see --verbose.",
			    strerror(-error));
	error = server_each_thread(chain->options.server, add_thread, chain);
	if (error)
		return fail(EXIT_NO_ENVIRONMENT,
			    "the threads of process %d cannot be followed: %s.",
			    chain->options.server, strerror(-error));
	return EXIT_OK;
}

static void reject(struct chain *chain, const struct candidate *candidate, int error,
		   const char *why)
{
	chain->rejections[chain->rejected++] = (struct rejection){candidate, error, why};
}

static bool is_avoided(const struct chain_options *options, const struct candidate *candidate)
{
	for (size_t i = 0; i < options->avoided; i++)
		if (strcmp(options->avoided_places[i], candidate->where) == 0)
			return true;
	return options->avoid[candidate->family];
}

static void try_candidate(struct chain *chain, const struct candidate *candidate)
{
	struct choice *choice = &chain->choices[candidate->measurement];
	int error;

	if (!chain->options.measure[candidate->measurement] || choice->candidate)
		return;
	if (is_avoided(&chain->options, candidate)) {
		reject(chain, candidate, 0, "avoided on request");
		return;
	}
	if (candidate->within_fault && !chain->choices[MEASURE_FAULT].candidate) {
		reject(chain, candidate, 0, "no fault is measured");
		return;
	}
	error = link_load(&choice->link, candidate, chain->kernel, chain->bpf->obj);
	if (error) {
		reject(chain, candidate, -error, choice->link.failed);
		return;
	}
	error = link_attach(&choice->link, candidate, chain->options.server);
	if (error) {
		reject(chain, candidate, -error, choice->link.failed);
		link_unload(&choice->link);
		return;
	}
	if (candidate->fired_by_fork && !trial_fork(chain->bpf)) {
		reject(chain, candidate, 0, "fork does not fire it");
		link_detach(&choice->link);
		link_unload(&choice->link);
		return;
	}
	if (candidate->lifetime != ALWAYS)
		link_detach(&choice->link);
	choice->candidate = candidate;
}

enum exit_code chain_open(struct chain *chain, const struct chain_options *options)
{
	enum exit_code code;

	memset(chain, 0, sizeof(*chain));
	chain->options = *options;
	tracefs_path();
	chain->kernel = btf__load_vmlinux_btf();
	if (!chain->kernel)
		return fail(EXIT_NO_ENVIRONMENT,
			    "this kernel has no BTF in /sys/kernel/btf/vmlinux: boot one built "
			    "with CONFIG_DEBUG_INFO_BTF=y.");
	chain->gfp = page_table_gfp_resolve(chain->kernel);
	code = load_maps(chain);
	if (!code)
		code = watch_tasks(chain);
	if (code)
		return code;
	candidates_fill(&chain->candidates, &chain->options.symbols);
	for (size_t i = 0; i < chain->candidates.count; i++)
		try_candidate(chain, &chain->candidates.list[i]);
	return EXIT_OK;
}

enum exit_code chain_arm(struct chain *chain)
{
	struct timespec now;

	if (chain->armed)
		return EXIT_OK;
	for (int m = 0; m < MEASUREMENTS; m++) {
		struct choice *choice = &chain->choices[m];
		int error;

		if (!choice->candidate || choice->candidate->lifetime == ALWAYS)
			continue;
		error = link_attach(&choice->link, choice->candidate, chain->options.server);
		if (error)
			return fail(EXIT_NO_ENVIRONMENT,
				    "%s could be attached at the start and now cannot (%s).",
				    choice->candidate->where, strerror(-error));
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	chain->bpf->bss->gate_opened_ns =
	    (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
	chain->bpf->bss->window_child = 0;
	chain->bpf->bss->gate_open = 1;
	chain->armed = true;
	return EXIT_OK;
}

static bool balanced(const struct chain *chain)
{
	struct cpu_counts counts;

	if (chain_counts(chain, &counts, NULL))
		return true;
	for (int m = 0; m < MEASUREMENTS; m++)
		if (counts.entries[m] != counts.exits[m])
			return false;
	return true;
}

/* A call that never comes back, such as a fault that killed the server, must not hold it up. */
static void drain(const struct chain *chain)
{
	const struct timespec step = {.tv_nsec = DRAIN_STEP_NS};

	for (int i = 0; i < DRAIN_STEPS && !balanced(chain); i++)
		nanosleep(&step, NULL);
}

static void detach(struct chain *chain, enum lifetime lifetime)
{
	for (int m = 0; m < MEASUREMENTS; m++) {
		struct choice *choice = &chain->choices[m];

		if (choice->candidate && choice->candidate->lifetime >= lifetime)
			link_detach_starts(&choice->link);
	}
	drain(chain);
	for (int m = 0; m < MEASUREMENTS; m++) {
		struct choice *choice = &chain->choices[m];

		if (choice->candidate && choice->candidate->lifetime >= lifetime)
			link_detach(&choice->link);
	}
}

void chain_forked(struct chain *chain)
{
	for (int m = 0; m < MEASUREMENTS; m++) {
		struct choice *choice = &chain->choices[m];

		if (choice->candidate && choice->candidate->lifetime == ARMED_TO_FORK)
			link_detach(&choice->link);
	}
}

static void disarm(struct chain *chain, enum lifetime lifetime)
{
	chain->bpf->bss->gate_open = 0;
	chain->armed = false;
	detach(chain, lifetime);
}

void chain_disarm(struct chain *chain)
{
	if (chain->armed)
		disarm(chain, ARMED_TO_WINDOW_END);
}

void chain_detach(struct chain *chain)
{
	disarm(chain, ALWAYS);
	link_detach(&chain->tasks);
}

void chain_close(struct chain *chain)
{
	for (int m = 0; m < MEASUREMENTS; m++) {
		link_detach(&chain->choices[m].link);
		link_unload(&chain->choices[m].link);
	}
	link_detach(&chain->tasks);
	link_unload(&chain->tasks);
	probe_bpf__destroy(chain->bpf);
	btf__free(chain->kernel);
}

bool chain_watches_child(const struct chain *chain, uint64_t child)
{
	return chain->armed && chain->bpf->bss->window_child == child;
}

bool chain_gate_is_open(const struct chain *chain)
{
	return chain->bpf->bss->gate_open;
}

int chain_events_fd(const struct chain *chain)
{
	return bpf_map__fd(chain->bpf->maps.events);
}

int chain_landmarks_fd(const struct chain *chain)
{
	return bpf_map__fd(chain->bpf->maps.landmarks);
}

int chain_cpus(void)
{
	return libbpf_num_possible_cpus();
}

int chain_counts(const struct chain *chain, struct cpu_counts *sum, uint32_t *next_sequence)
{
	int cpus = chain_cpus();
	struct cpu_counts *each;
	uint32_t zero = 0;
	int error;

	memset(sum, 0, sizeof(*sum));
	if (cpus < 0)
		return cpus;
	each = calloc((size_t)cpus, sizeof(*each));
	if (!each)
		return -ENOMEM;
	error = bpf_map_lookup_elem(bpf_map__fd(chain->bpf->maps.counts), &zero, each);
	for (int cpu = 0; cpu < cpus && !error; cpu++) {
		if (next_sequence)
			next_sequence[cpu] = each[cpu].next_sequence;
		for (int kind = 0; kind < EVENT_KINDS; kind++) {
			sum->events[kind].seen += each[cpu].events[kind].seen;
			sum->events[kind].emitted += each[cpu].events[kind].emitted;
			sum->events[kind].dropped += each[cpu].events[kind].dropped;
			sum->events[kind].suppressed += each[cpu].events[kind].suppressed;
		}
		for (int m = 0; m < MEASUREMENTS; m++) {
			sum->entries[m] += each[cpu].entries[m];
			sum->exits[m] += each[cpu].exits[m];
		}
	}
	free(each);
	return error;
}

static void describe_probe(struct json *json, const struct candidate *candidate)
{
	char name[160];

	snprintf(name, sizeof(name), "%s:%s", family_names[candidate->family], candidate->where);
	json_string(json, "probe", name);
}

static void describe_rejection(struct json *json, const struct rejection *rejection)
{
	char why[160];

	snprintf(why, sizeof(why), "%s%s%s", rejection->why, rejection->error ? ": " : "",
		 rejection->error ? strerror(rejection->error) : "");
	json_open_object(json, NULL);
	describe_probe(json, rejection->candidate);
	json_integer(json, "errno", rejection->error);
	json_string(json, "why", why);
	json_close_object(json);
}

void chain_describe(const struct chain *chain, struct json *json)
{
	json_open_object(json, "probes");
	for (int m = 0; m < MEASUREMENTS; m++) {
		const struct candidate *chosen = chain->choices[m].candidate;

		if (!chain->options.measure[m])
			continue;
		json_open_object(json, measurement_names[m]);
		if (chosen)
			describe_probe(json, chosen);
		else
			json_string(json, "probe", NULL);
		json_string(json, "label", chosen ? chosen->label : NULL);
		json_open_array(json, "rejected");
		for (size_t i = 0; i < chain->rejected; i++)
			if ((int)chain->rejections[i].candidate->measurement == m)
				describe_rejection(json, &chain->rejections[i]);
		json_close_array(json);
		json_close_object(json);
	}
	json_close_object(json);
	json_open_object(json, "page_table_gfp");
	json_string(json, "source", chain->gfp.source);
	json_unsigned(json, "set", chain->gfp.set);
	json_unsigned(json, "clear", chain->gfp.clear);
	json_close_object(json);
}

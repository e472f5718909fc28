// SPDX-License-Identifier: Apache-2.0
/* A server in flight on any kernel: runs the probe's own programs for fork_pt's tracepoints by
 * BPF_PROG_TEST_RUN, each in the task that would pass the tracepoint, and prints what they emit:
 * a line "step NAME PID...", then for each event its kind, context, aux and tgid. */
#define _GNU_SOURCE
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"
#include "probe.skel.h"

#define FAULT 1
#define ADDRESS 0x200000

struct held {
	pid_t pid;
	int go;
};

static struct probe_bpf *bpf;
static uint64_t server;

static void require(int good, const char *what)
{
	if (good)
		return;
	perror(what);
	exit(1);
}

static void pass(const struct bpf_program *program, uint64_t tgid, uint64_t reason, uint64_t tables)
{
	uint64_t arguments[] = {tgid, reason, ADDRESS, tables};
	LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = arguments,
		    .ctx_size_in = sizeof(arguments));

	require(!bpf_prog_test_run_opts(bpf_program__fd(program), &options), "BPF_PROG_TEST_RUN");
}

static void begin(uint64_t tables)
{
	pass(bpf->progs.flight_enter, server, 0, tables);
}

/* A child that ends its flight when it is told to. */
static struct held forked(const struct bpf_program *end, uint64_t copied)
{
	int ends[2];
	char byte;
	struct held child;

	require(!pipe(ends), "pipe");
	fflush(stdout);
	child.pid = fork();
	require(child.pid >= 0, "fork");
	if (child.pid == 0) {
		require(read(ends[0], &byte, 1) == 1, "read");
		if (end)
			pass(end, server, 0, copied);
		_exit(0);
	}
	close(ends[0]);
	child.go = ends[1];
	return child;
}

static void release(struct held child)
{
	require(write(child.go, "", 1) == 1, "write");
	close(child.go);
	waitpid(child.pid, NULL, 0);
}

static int print(void *context, void *data, size_t length)
{
	const struct event *event = data;

	(void)context;
	(void)length;
	printf("%u %llu %llu %u\n", event->kind, event->context, event->aux, event->tgid);
	return 0;
}

static void load(void)
{
	struct bpf_program *program;

	bpf = probe_bpf__open();
	require(bpf != NULL, "open");
	bpf_object__for_each_program(program, bpf->obj) bpf_program__set_autoload(program, false);
	bpf_program__set_autoload(bpf->progs.child_born, true);
	bpf_program__set_autoload(bpf->progs.flight_enter, true);
	bpf_program__set_autoload(bpf->progs.flight_done, true);
	bpf_program__set_autoload(bpf->progs.flight_abort, true);
	bpf_program__set_autoload(bpf->progs.interruption_sync_enter, true);
	bpf_program__set_autoload(bpf->progs.interruption_sync_left, true);
	bpf->rodata->server_tgid = (uint32_t)server;
	require(!probe_bpf__load(bpf), "load");
	require(bpf_program__attach(bpf->progs.child_born) != NULL, "attach");
}

int main(void)
{
	struct ring_buffer *ring;
	struct held first, second;

	server = (uint64_t)getpid();
	load();
	ring = ring_buffer__new(bpf_map__fd(bpf->maps.landmarks), print, NULL, NULL);
	require(ring && !ring_buffer__add(ring, bpf_map__fd(bpf->maps.events), print, NULL),
		"ring buffer");

	begin(325);
	pass(bpf->progs.flight_done, server, 0, 320);
	first = forked(NULL, 0);
	release(first);
	printf("step within-fork %" PRIu64 " %d\n", server, first.pid);
	ring_buffer__consume(ring);

	begin(400);
	first = forked(bpf->progs.flight_done, 390);
	release(first);
	printf("step left-to-child %" PRIu64 " %d\n", server, first.pid);
	ring_buffer__consume(ring);

	begin(100);
	first = forked(bpf->progs.flight_abort, 12);
	begin(200);
	second = forked(bpf->progs.flight_done, 190);
	release(second);
	release(first);
	printf("step overlapping %" PRIu64 " %d %d\n", server, first.pid, second.pid);
	ring_buffer__consume(ring);

	/* The end of another process' flight, and one whose beginning was not seen. */
	begin(50);
	pass(bpf->progs.flight_done, server + 1, 0, 50);
	first = forked(NULL, 0);
	release(first);
	pass(bpf->progs.flight_done, server, 0, 50);
	printf("step not-its-own %" PRIu64 "\n", server);
	ring_buffer__consume(ring);

	pass(bpf->progs.interruption_sync_enter, server, FAULT, 1);
	bpf->bss->gate_open = 1;
	pass(bpf->progs.interruption_sync_enter, server, FAULT, 1);
	pass(bpf->progs.interruption_sync_left, server, FAULT, 1);
	printf("step synchronization %" PRIu64 "\n", server);
	ring_buffer__consume(ring);
	return 0;
}

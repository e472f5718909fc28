// SPDX-License-Identifier: Apache-2.0
#include "link.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fault_counter.h"
#include "probe.skel.h"
#include "server.h"

static struct bpf_object *open_programs(void)
{
	LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "probe_bpf");
	size_t length;
	const void *bytes = probe_bpf__elf_bytes(&length);

	return bpf_object__open_mem(bytes, length, &options);
}

/* In the order of the file: a reused map takes the kernel's name for it, which may be cut short. */
static int share_maps(struct bpf_object *object, const struct bpf_object *core)
{
	struct bpf_map *map = NULL, *shared = NULL;
	int error;

	while ((map = bpf_object__next_map(object, map))) {
		shared = bpf_object__next_map(core, shared);
		error = bpf_map__reuse_fd(map, bpf_map__fd(shared));
		if (error)
			return error;
	}
	return 0;
}

static bool is_function_tracer(const struct bpf_program *program)
{
	return strncmp(bpf_program__section_name(program), "fe", 2) == 0;
}

static int select_programs(struct link *link, const struct candidate *candidate,
			   const struct btf *kernel)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, link->object)
	    bpf_program__set_autoload(program, false);
	for (const struct attachment *at = candidate->attachments; at->program; at++) {
		program = bpf_object__find_program_by_name(link->object, at->program);
		if (is_function_tracer(program)) {
			if (btf__find_by_name_kind(kernel, at->target, BTF_KIND_FUNC) < 0) {
				link->failed = "not in the kernel's BTF";
				return -ENOENT;
			}
			bpf_program__set_attach_target(program, 0, at->target);
		}
		bpf_program__set_autoload(program, true);
	}
	return 0;
}

int link_load(struct link *link, const struct candidate *candidate, const struct btf *kernel,
	      const struct bpf_object *core)
{
	int error;

	memset(link, 0, sizeof(*link));
	link->failed = "load";
	link->object = open_programs();
	if (!link->object)
		return -errno;
	error = share_maps(link->object, core);
	if (!error)
		error = select_programs(link, candidate, kernel);
	if (!error)
		error = bpf_object__load(link->object);
	if (error)
		link_unload(link);
	return error;
}

static int keep(struct link *link, struct bpf_link *attached)
{
	struct bpf_link **grown;

	if (!attached)
		return -errno;
	grown = realloc(link->attached, (link->count + 1) * sizeof(*grown));
	if (!grown) {
		bpf_link__destroy(attached);
		return -ENOMEM;
	}
	link->attached = grown;
	link->attached[link->count++] = attached;
	return 0;
}

static int attach_tracepoint(struct link *link, struct bpf_program *program, const char *target)
{
	const char *slash = strchr(target, '/');
	char category[32] = "";

	strncat(category, target, (size_t)(slash - target));
	return keep(link, bpf_program__attach_tracepoint(program, category, slash + 1));
}

struct counters {
	struct link *link;
	struct bpf_program *program;
};

static int attach_thread_counters(pid_t tid, void *context)
{
	const struct counters *counters = context;

	for (int kind = 0; kind < FAULT_COUNTERS; kind++) {
		int fd = fault_counter_open(tid, kind);
		int error;

		if (fd == -ESRCH)
			return 0;
		if (fd < 0)
			return fd;
		error = keep(counters->link, bpf_program__attach_perf_event(counters->program, fd));
		if (error) {
			close(fd);
			return error;
		}
	}
	return 0;
}

static int attach_one(struct link *link, struct bpf_program *program,
		      const struct attachment *attachment, pid_t server)
{
	LIBBPF_OPTS(bpf_kprobe_opts, kprobe, .bpf_cookie = attachment->cookie);
	LIBBPF_OPTS(bpf_trace_opts, trace, .cookie = attachment->cookie);
	struct counters counters = {link, program};
	const char *section = bpf_program__section_name(program);

	switch (bpf_program__type(program)) {
	case BPF_PROG_TYPE_KPROBE:
		kprobe.retprobe = strcmp(section, "kretprobe") == 0;
		return keep(link,
			    bpf_program__attach_kprobe_opts(program, attachment->target, &kprobe));
	case BPF_PROG_TYPE_TRACEPOINT:
		return attach_tracepoint(link, program, attachment->target);
	case BPF_PROG_TYPE_PERF_EVENT:
		return server_each_thread(server, attach_thread_counters, &counters);
	case BPF_PROG_TYPE_TRACING:
		if (is_function_tracer(program))
			return keep(link, bpf_program__attach_trace_opts(program, &trace));
		return keep(link, bpf_program__attach(program));
	default:
		return keep(link, bpf_program__attach(program));
	}
}

static bool sees_start(const char *program)
{
	static const char *const endings[] = {"_fentry", "_kprobe", "_enter", "_exception"};

	for (size_t i = 0; i < sizeof(endings) / sizeof(*endings); i++) {
		size_t length = strlen(program), ending = strlen(endings[i]);

		if (length > ending && strcmp(program + length - ending, endings[i]) == 0)
			return true;
	}
	return false;
}

int link_attach(struct link *link, const struct candidate *candidate, pid_t server)
{
	for (const struct attachment *at = candidate->attachments; at->program; at++) {
		struct bpf_program *program =
		    bpf_object__find_program_by_name(link->object, at->program);
		int error = attach_one(link, program, at, server);

		if (error) {
			link->failed = "attach";
			link_detach(link);
			return error;
		}
		if (!sees_start(at->program))
			link->ends = link->count;
	}
	return 0;
}

static void detach_down_to(struct link *link, size_t remaining)
{
	while (link->count > remaining)
		bpf_link__destroy(link->attached[--link->count]);
}

void link_detach_starts(struct link *link)
{
	detach_down_to(link, link->ends);
}

void link_detach(struct link *link)
{
	detach_down_to(link, 0);
	free(link->attached);
	link->attached = NULL;
	link->ends = 0;
}

void link_unload(struct link *link)
{
	bpf_object__close(link->object);
	link->object = NULL;
}

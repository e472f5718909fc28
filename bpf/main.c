// SPDX-License-Identifier: Apache-2.0
#include <bpf/libbpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "options.h"
#include "server.h"
#include "watch.h"

static bool verbose;

static int print_libbpf(enum libbpf_print_level level, const char *format, va_list arguments)
{
	(void)level;
	return verbose ? vfprintf(stderr, format, arguments) : 0;
}

static enum exit_code check_server(pid_t pid)
{
	pid_t ids[MAX_PID_NAMESPACES];
	char path[64];

	if (geteuid() != 0)
		return fail(EXIT_NO_ENVIRONMENT, "loading BPF programs needs root: run with sudo.");
	if (!in_root_pid_namespace())
		return fail(EXIT_NO_ENVIRONMENT,
			    "process ids cannot be told in a PID namespace: run in the host's, "
			    "with the server's id there.");
	snprintf(path, sizeof(path), "/proc/%d/task/%d", pid, pid);
	if (server_namespace_ids(pid, ids) < 0 || access(path, F_OK) != 0)
		return fail(EXIT_NO_ENVIRONMENT,
			    "there is no process %d: give the id of a running server.", pid);
	return EXIT_OK;
}

int main(int argc, char **argv)
{
	struct options options;
	enum exit_code code = options_read(&options, argc, argv);
	int pidfd;

	if (code || options.answered)
		return code;
	verbose = options.verbose;
	libbpf_set_print(print_libbpf);
	/* Without a server, whether a probe attaches can be tried on the probe itself. */
	if (!options.chain.server)
		options.chain.server = getpid();
	code = check_server(options.chain.server);
	if (code)
		return code;
	pidfd = (int)syscall(SYS_pidfd_open, options.chain.server, 0);
	if (pidfd < 0)
		return fail(EXIT_NO_ENVIRONMENT, "process %d cannot be followed: %s.",
			    options.chain.server, strerror(errno));
	code = watch(&options, pidfd);
	close(pidfd);
	return code;
}

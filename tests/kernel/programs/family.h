// SPDX-License-Identifier: Apache-2.0
#ifndef FORKTAIL_FAMILY_H
#define FORKTAIL_FAMILY_H

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "tap.h"

/* A child that waits until it is told to go on. */
struct child {
	pid_t pid;
	int go;
};

/* Like fork(): the pid is 0 in the child, which goes on at once. */
static inline struct child family_fork(void)
{
	int ends[2];
	pid_t pid;

	if (pipe(ends))
		tap_bail_out("pipe: %s", strerror(errno));
	pid = fork();
	if (pid < 0)
		tap_bail_out("fork: %s", strerror(errno));
	close(ends[pid == 0]);
	return (struct child){.pid = pid, .go = ends[pid != 0]};
}

/* In the child: until family_go(), or the parent's end. */
static inline void family_wait(struct child *self)
{
	char byte;

	while (read(self->go, &byte, 1) < 0 && errno == EINTR)
		;
	close(self->go);
}

static inline void family_go(struct child *child)
{
	/* Closing alone would not do: younger siblings have the end too. A child that was killed
	 * reads no more. */
	signal(SIGPIPE, SIG_IGN);
	while (write(child->go, "", 1) < 0 && errno == EINTR)
		;
	close(child->go);
	child->go = -1;
}

/* How the child ended, as waitpid() tells it. */
static inline int family_end(struct child *child)
{
	int status = -1;

	if (child->go >= 0)
		family_go(child);
	while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status && status != SIGKILL)
		tap_note("child %d ended with status %#x", child->pid, status);
	return status;
}

/* Whether the child ended by itself, and well. */
static inline bool family_join(struct child *child)
{
	return family_end(child) == 0;
}

#endif

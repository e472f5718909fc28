/* SPDX-License-Identifier: Apache-2.0 */
/* Commands on standard input, JSON lines on standard output. */
#ifndef FORKTAIL_CONVERSATION_H
#define FORKTAIL_CONVERSATION_H

#include <stddef.h>

#include "chain.h"
#include "probe.h"

enum command {
	COMMAND_NONE,
	COMMAND_ARM,
	COMMAND_DISARM,
	COMMAND_STOP,
	COMMAND_END_OF_INPUT,
	COMMAND_UNKNOWN,
};

struct conversation {
	char line[64];
	size_t length;
};

struct losses {
	uint64_t dropped;
	int64_t unmatched;
};

/* Takes what standard input holds by now: call when it is readable, until COMMAND_NONE. */
enum command conversation_read(struct conversation *conversation);

void say_header(const struct chain *chain, uint64_t attach_ns);
void say_ready(const struct chain *chain, uint64_t attach_ns);
/* The costly programs began to be attached at `from`. */
void say_armed(uint64_t from, uint64_t now);
void say_disarmed(uint64_t now);
void say_fork(const struct event *event);
void say_fork_unmeasured(const struct event *event);
void say_window_end(const struct event *event);
struct losses say_end(const struct chain *chain, uint64_t records, uint64_t end_ns,
		      const char *reason);

#endif

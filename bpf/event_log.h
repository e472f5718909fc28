/* SPDX-License-Identifier: Apache-2.0 */
/* events.bin, version 2: a header of 64 bytes and records of 48. */
#ifndef FORKTAIL_EVENT_LOG_H
#define FORKTAIL_EVENT_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "probe.h"

struct event_log {
	char path[4096];
	char partial_path[4104];
	int fd;
	int error;
	uint64_t records;
	size_t buffered;
	struct event *buffer;
};

/* Writes to PATH.tmp until closed, so that a log cut short is never taken for a whole one. Each
 * returns 0 or a negative errno. */
int event_log_open(struct event_log *log, const char *path, uint32_t server_tgid,
		   uint64_t attach_ns);
void event_log_append(struct event_log *log, const struct event *event);
int event_log_close(struct event_log *log);

#endif

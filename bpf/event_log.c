// SPDX-License-Identifier: Apache-2.0
#include "event_log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VERSION 2
#define BUFFER_RECORDS (((size_t)1 << 20) / sizeof(struct event))

struct header {
	char magic[8];
	uint32_t version;
	uint32_t header_bytes;
	uint32_t record_bytes;
	uint32_t server_tgid;
	uint64_t records;
	uint64_t attach_ns;
	uint64_t zero[3];
};

_Static_assert(sizeof(struct header) == 64, "the format fixes the header's size");
_Static_assert(sizeof(struct event) == 48, "the format fixes the record's size");

static void write_all(struct event_log *log, const void *data, size_t length)
{
	const char *at = data;

	while (length && !log->error) {
		ssize_t written = write(log->fd, at, length);

		if (written < 0 && errno != EINTR)
			log->error = -errno;
		if (written > 0) {
			at += written;
			length -= (size_t)written;
		}
	}
}

static void flush(struct event_log *log)
{
	write_all(log, log->buffer, log->buffered * sizeof(*log->buffer));
	log->buffered = 0;
}

int event_log_open(struct event_log *log, const char *path, uint32_t server_tgid,
		   uint64_t attach_ns)
{
	struct header header = {
	    .magic = "FTELOG",
	    .version = VERSION,
	    .header_bytes = sizeof(header),
	    .record_bytes = sizeof(struct event),
	    .server_tgid = server_tgid,
	    .attach_ns = attach_ns,
	};

	memset(log, 0, sizeof(*log));
	if (strlen(path) >= sizeof(log->path))
		return -ENAMETOOLONG;
	strcpy(log->path, path);
	snprintf(log->partial_path, sizeof(log->partial_path), "%s.tmp", path);
	log->fd = open(log->partial_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (log->fd < 0)
		return -errno;
	log->buffer = malloc(BUFFER_RECORDS * sizeof(*log->buffer));
	if (!log->buffer)
		return -ENOMEM;
	write_all(log, &header, sizeof(header));
	return log->error;
}

void event_log_append(struct event_log *log, const struct event *event)
{
	log->buffer[log->buffered++] = *event;
	log->records++;
	if (log->buffered == BUFFER_RECORDS)
		flush(log);
}

int event_log_close(struct event_log *log)
{
	flush(log);
	free(log->buffer);
	if (!log->error && pwrite(log->fd, &log->records, sizeof(log->records),
				  offsetof(struct header, records)) != sizeof(log->records))
		log->error = -EIO;
	if (close(log->fd) && !log->error)
		log->error = -errno;
	if (!log->error && rename(log->partial_path, log->path))
		log->error = -errno;
	return log->error;
}

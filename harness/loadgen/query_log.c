/* SPDX-License-Identifier: Apache-2.0 */
#include "query_log.h"

#include "fail.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUERY_LOG_VERSION 2

struct query_log_header {
	char magic[8];
	uint32_t version;
	uint32_t header_bytes;
	uint32_t record_bytes;
	uint32_t connections;
	uint64_t records;
	uint64_t start;
	uint64_t seed;
	double rate;
	uint64_t zero;
};
_Static_assert(sizeof(struct query_log_header) == 64, "the header is part of the format");

static uint64_t memory_available(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long long kib = 0;
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "MemAvailable: %llu kB", &kib) == 1)
			break;
	if (file)
		fclose(file);
	return kib << 10;
}

/* Populated now: a page fault during the run would be the generator's own latency. */
static struct query_record *allocate(uint64_t capacity)
{
	uint64_t bytes = capacity * sizeof(struct query_record);

	/* Asked first, because populating beyond it would have the server killed, not us. */
	if (bytes > memory_available())
		fail(EXIT_ENVIRONMENT,
		     "the log of %llu queries needs %llu MiB of memory, more than is available",
		     (unsigned long long)capacity, (unsigned long long)(bytes >> 20));

	void *records = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
			     MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (records == MAP_FAILED)
		fail(EXIT_ENVIRONMENT, "no memory for the log of %llu queries: %s",
		     (unsigned long long)capacity, strerror(errno));
	return records;
}

/* Renaming over /dev/stdout or a pipe would replace it. */
static bool is_special(const char *path)
{
	struct stat status;

	return stat(path, &status) == 0 && !S_ISREG(status.st_mode);
}

_Noreturn static void fail_writing(struct query_log *log, int error)
{
	if (log->partial)
		unlink(log->partial);
	fail(EXIT_ENVIRONMENT, "cannot write the log %s: %s", log->path, strerror(error));
}

static uint64_t file_bytes(uint64_t records)
{
	return sizeof(struct query_log_header) + records * sizeof(struct query_record);
}

struct query_log query_log_open(const char *path, uint64_t capacity)
{
	struct query_log log = {.path = path, .capacity = capacity, .records = allocate(capacity)};

	if (!is_special(path) && asprintf(&log.partial, "%s.tmp", path) < 0)
		fail(EXIT_ENVIRONMENT, "no memory for a path");

	const char *target = log.partial ? log.partial : path;

	log.fd = open(target, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (log.fd < 0)
		fail(EXIT_BAD_INPUT, "cannot open the log %s: %s", target, strerror(errno));
	if (log.partial && fallocate(log.fd, 0, 0, (off_t)file_bytes(capacity)) &&
	    errno != EOPNOTSUPP)
		fail_writing(&log, errno);
	return log;
}

static void write_all(struct query_log *log, const void *data, uint64_t bytes)
{
	const char *at = data;

	while (bytes) {
		ssize_t written = write(log->fd, at, bytes);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0)
			fail_writing(log, errno);
		at += written;
		bytes -= (uint64_t)written;
	}
}

void query_log_write(struct query_log *log, const struct query_log_origin *origin)
{
	struct query_log_header header = {
	    .magic = "FTQLOG",
	    .version = QUERY_LOG_VERSION,
	    .header_bytes = sizeof(struct query_log_header),
	    .record_bytes = sizeof(struct query_record),
	    .connections = origin->connections,
	    .records = log->count,
	    .start = origin->start,
	    .seed = origin->seed,
	    .rate = origin->rate,
	};

	write_all(log, &header, sizeof(header));
	write_all(log, log->records, log->count * sizeof(struct query_record));
	if (log->partial && (ftruncate(log->fd, (off_t)file_bytes(log->count)) || fsync(log->fd)))
		fail_writing(log, errno);
	if (close(log->fd) || (log->partial && rename(log->partial, log->path)))
		fail_writing(log, errno);
	free(log->partial);
	log->partial = NULL;
}

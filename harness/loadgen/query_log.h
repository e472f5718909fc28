/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_QUERY_LOG_H
#define FORKTAIL_QUERY_LOG_H

#include <stdint.h>

#define DELTA_NEVER ((1ULL << 44) - 1)
#define CONNECTIONS_MAX (1U << 20)

enum query_status { QUERY_OK, QUERY_ERROR, QUERY_LOST, QUERY_IN_FLIGHT, QUERY_UNSENT };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the log is written as it is in memory");

/*
 * One query as docs/formats.md lays it out. Two deltas are split, because four of 44 bits and the
 * intended time would not fit into whole words.
 */
struct query_record {
	uint64_t intended;
	uint64_t sent_after : 44;
	uint64_t held_low : 20;
	uint64_t completed_after : 44;
	uint64_t read_low : 20;
	uint64_t held_high : 24;
	uint64_t read_high : 24;
	uint64_t operation : 4;
	uint64_t status : 4;
	uint64_t miss : 1;
	uint64_t stamped : 1; /* completed_after is by the kernel's stamp */
	uint64_t zero : 6;
};
_Static_assert(sizeof(struct query_record) == 32, "the record is part of the format");

#define LOW_BITS 20

/* How long the query waited for room in its socket. */
static inline uint64_t record_held(const struct query_record *record)
{
	return (uint64_t)record->held_high << LOW_BITS | record->held_low;
}

static inline void record_set_held(struct query_record *record, uint64_t ns)
{
	record->held_low = ns & ((1U << LOW_BITS) - 1);
	record->held_high = (ns >> LOW_BITS) & 0xffffff;
}

/* How long the reply lay in the socket before it was read. */
static inline uint64_t record_read_delay(const struct query_record *record)
{
	return (uint64_t)record->read_high << LOW_BITS | record->read_low;
}

static inline void record_set_read_delay(struct query_record *record, uint64_t ns)
{
	record->read_low = ns & ((1U << LOW_BITS) - 1);
	record->read_high = (ns >> LOW_BITS) & 0xffffff;
}

struct query_log {
	struct query_record *records;
	uint64_t capacity, count;
	const char *path;
	char *partial; /* null where the path is a device or a pipe */
	int fd;
};

struct query_log_origin {
	uint64_t start, seed;
	uint32_t connections;
	double rate;
};

/* Time since intended, for a record's field; a later time than it can hold stays below never. */
static inline uint64_t delta_between(uint64_t intended, uint64_t time)
{
	uint64_t delta = time - intended;

	return delta < DELTA_NEVER ? delta : DELTA_NEVER - 1;
}

/* Opens the file and reserves it and the memory in full, so that a lack shows before the run. */
struct query_log query_log_open(const char *path, uint64_t capacity);

/* Writes beside the path and renames: a log that has its name is whole. */
void query_log_write(struct query_log *log, const struct query_log_origin *origin);

#endif

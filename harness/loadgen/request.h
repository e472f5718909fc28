/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_REQUEST_H
#define FORKTAIL_REQUEST_H

#include "values.h"
#include "workload.h"

#include <stddef.h>
#include <sys/uio.h>

#define HEAD_BYTES 64
#define BATCH_REQUESTS 256

/* The bytes of a request before its value: constant but for the key. */
struct request_head {
	char text[HEAD_BYTES];
	size_t bytes, key_at;
};

struct request_format {
	struct request_head heads[2]; /* by operation */
	const struct key_names *names;
	struct value_pool values;
};

/* Requests ready for one sendmsg; values stay where they are in the pool. */
struct request_batch {
	size_t requests;
	size_t bytes[BATCH_REQUESTS];
	char heads[BATCH_REQUESTS][HEAD_BYTES];
	size_t parts;
	struct iovec part[BATCH_REQUESTS * 3];
};

struct request_format request_format_of(struct value_pool values, enum key_naming naming);

static inline void request_batch_clear(struct request_batch *batch)
{
	batch->requests = batch->parts = 0;
}

static inline bool request_batch_full(const struct request_batch *batch)
{
	return batch->requests == BATCH_REQUESTS;
}

void request_batch_add(struct request_batch *batch, const struct request_format *format,
		       const struct query *query);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_CONNECTION_H
#define FORKTAIL_CONNECTION_H

#include "hold.h"
#include "reply.h"
#include "request.h"
#include "stamp_clock.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Queries go round-robin, and replies come in order, so the k-th query of a connection is
 * index + k * connections: two counters are its whole queue.
 */
struct connection {
	int fd; /* -1 once lost */
	uint32_t index;
	struct hold hold; /* while the socket takes less than it is given */
	size_t head_sent; /* bytes of the first unsent request that the kernel has already */
	uint64_t sent;    /* requests handed to the kernel in full */
	uint64_t answered;
	struct reply_parser parser;
};

enum connection_state { CONNECTION_ALIVE, CONNECTION_LOST };

/* When a reply had come whole: into the socket, by the kernel's stamp, and to this process. */
struct reply_time {
	uint64_t arrived; /* the same as read where there is no stamp */
	uint64_t read;
	bool stamped;
};

typedef void reply_handler(void *context, struct connection *connection, enum reply_kind kind,
			   const struct reply_time *time);

/* Connects one after the other, so the server accepts them in the order of their index. */
struct connection *connections_open(const char *host, uint16_t port, uint32_t count);

/* Registers for both directions, edge-triggered: a full socket costs no further system call. */
void connection_watch(const struct connection *connection, int epoll);

/* Asks the kernel to stamp what arrives; where it cannot, replies arrive when they are read. */
void connection_stamp_arrivals(const struct connection *connection);

void connection_close(struct connection *connection);

/* Hands the batch to the kernel as far as it takes it, and advances the counters. */
enum connection_state connection_send(struct connection *connection, struct request_batch *batch);

/*
 * Reads all there is. The stamp is that of the last packet of one read, so replies that waited in
 * the socket together arrive together, none before it was there. Without a clock no stamp counts.
 */
enum connection_state connection_receive(struct connection *connection,
					 const struct stamp_clock *clock, reply_handler *handler,
					 void *context);

#endif

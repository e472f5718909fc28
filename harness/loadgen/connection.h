/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_CONNECTION_H
#define FORKTAIL_CONNECTION_H

#include "reply.h"
#include "request.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * Queries go round-robin, and replies come in order, so the k-th query of a connection is
 * index + k * connections: two counters are its whole queue.
 */
struct connection {
	int fd; /* -1 once lost */
	uint32_t index;
	bool full;        /* the socket took less than it was given */
	size_t head_sent; /* bytes of the first unsent request that the kernel has already */
	uint64_t sent;    /* requests handed to the kernel in full */
	uint64_t answered;
	struct reply_parser parser;
};

enum connection_state { CONNECTION_ALIVE, CONNECTION_LOST };

typedef void reply_handler(void *context, struct connection *connection, enum reply_kind kind,
			   uint64_t now);

/* Connects one after the other, so the server accepts them in the order of their index. */
struct connection *connections_open(const char *host, uint16_t port, uint32_t count);

/* Registers for both directions, edge-triggered: a full socket costs no further system call. */
void connection_watch(const struct connection *connection, int epoll);

void connection_close(struct connection *connection);

/* Hands the batch to the kernel as far as it takes it, and advances the counters. */
enum connection_state connection_send(struct connection *connection, struct request_batch *batch);

/* Reads all there is; the handler gets each reply with the time at which it had been read. */
enum connection_state connection_receive(struct connection *connection, reply_handler *handler,
					 void *context);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_TRAFFIC_H
#define FORKTAIL_TRAFFIC_H

#include "arrivals.h"
#include "connection.h"
#include "error_tally.h"
#include "query_log.h"
#include "request.h"
#include "workload.h"

#include <stdbool.h>
#include <stdint.h>

/* What has happened to the queries so far. */
struct traffic_counts {
	uint64_t intended;
	uint64_t sent;
	uint64_t completed;
	uint64_t errors;
	uint64_t lost;
	uint64_t abandoned; /* due on a lost connection, hence never sent */
	uint64_t misses;
};

/*
 * The open loop's state. A query is recorded when it is due, is sent as soon as its socket takes
 * it, and is settled by its reply or by the loss of its connection; nothing waits for replies.
 */
struct traffic {
	struct workload workload;
	struct arrivals arrivals;
	struct request_format format;
	struct query_log *log;
	struct connection *connections;
	uint32_t connection_count, alive;
	uint32_t held_connections; /* whose sockets are full */
	struct stamp_clock clock;

	uint64_t origin;
	uint64_t limit;    /* queries to schedule */
	uint64_t next_due; /* NEVER once all are scheduled */
	struct traffic_counts counts;
	struct error_tally errors;
	char last_words[REPLY_ERROR_BYTES]; /* the error that came before a connection closed */
	struct request_batch batch;
};

/* Fixes the schedule's origin. */
void traffic_start(struct traffic *traffic, uint64_t origin);

/* Records every query due by now, and sends what the sockets take. */
void traffic_dispatch(struct traffic *traffic, uint64_t now);

/* The connection's socket has room again; it was last known to be full at `until`. */
void traffic_room(struct traffic *traffic, uint32_t connection, uint64_t until);

/* Acts on what epoll says of one connection. */
void traffic_handle(struct traffic *traffic, uint32_t connection, uint32_t events);

/* Schedules no more. */
void traffic_stop(struct traffic *traffic);

/* Settles for how long the queries that were never sent were held. */
void traffic_end(struct traffic *traffic, uint64_t now);

bool traffic_settled(const struct traffic *traffic);

/* By the connections' counters, on those that are alive and on all. */
uint64_t traffic_in_flight(const struct traffic *traffic);
uint64_t traffic_unsent(const struct traffic *traffic);

#endif

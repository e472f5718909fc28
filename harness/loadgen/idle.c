/* SPDX-License-Identifier: Apache-2.0 */
#include "idle.h"

#include "clock.h"
#include "fail.h"

#include <poll.h>

#define PATIENCE_MS 5000

struct trip {
	uint64_t arrived; /* 0 while the reply is outstanding */
};

static void take_reply(void *context, struct connection *connection, enum reply_kind kind,
		       const struct reply_time *time)
{
	struct trip *trip = context;

	(void)connection;
	(void)kind;
	trip->arrived = time->arrived;
}

static int wait_for(const struct connection *connection, short events)
{
	struct pollfd ready = {.fd = connection->fd, .events = events};

	return poll(&ready, 1, PATIENCE_MS);
}

/* Returns the time from the sending to the reply; 0 where the server did not answer. */
static uint64_t round_trip(struct traffic *t, struct connection *c, uint64_t sequence)
{
	struct query query = workload_query(&t->workload, sequence);
	struct trip trip = {0};

	request_batch_clear(&t->batch);
	request_batch_add(&t->batch, &t->format, &query);

	uint64_t sent = clock_now();

	do {
		c->hold.full = false;
		if (connection_send(c, &t->batch) == CONNECTION_LOST)
			return 0;
	} while (c->hold.full && wait_for(c, POLLOUT) > 0);
	while (!trip.arrived) {
		if (wait_for(c, POLLIN) <= 0 ||
		    connection_receive(c, &t->clock, take_reply, &trip) == CONNECTION_LOST)
			return 0;
	}
	return trip.arrived > sent ? trip.arrived - sent : 1;
}

size_t idle_round_trips(struct traffic *traffic, uint64_t count, uint64_t *round_trips)
{
	struct connection *connection = &traffic->connections[0];

	for (uint64_t i = 0; i < count; i++) {
		round_trips[i] = round_trip(traffic, connection, i);
		if (!round_trips[i])
			fail(EXIT_ENVIRONMENT,
			     "the server did not answer one query within %d s before the load",
			     PATIENCE_MS / 1000);
	}
	/* The load counts from its own first query. */
	connection->sent = connection->answered = 0;
	connection->hold = (struct hold){0};
	return (size_t)count;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "traffic.h"

#include "clock.h"

#include <string.h>
#include <sys/epoll.h>

/* The number of a connection's k-th query. */
static uint64_t sequence_of(const struct traffic *t, const struct connection *c, uint64_t k)
{
	return c->index + k * t->connection_count;
}

static struct query_record *record_of(struct traffic *t, const struct connection *c, uint64_t k)
{
	return &t->log->records[sequence_of(t, c, k)];
}

/* How many of the queries due so far are this connection's. */
static uint64_t due_on(const struct traffic *t, const struct connection *c)
{
	uint64_t n = t->connection_count;

	return (t->counts.intended + n - 1 - c->index) / n;
}

static void schedule_next(struct traffic *t)
{
	t->next_due = NEVER;
	if (t->counts.intended < t->limit)
		t->next_due = t->origin + arrivals_next(&t->arrivals);
}

void traffic_start(struct traffic *t, uint64_t origin)
{
	t->origin = origin;
	t->alive = t->connection_count;
	schedule_next(t);
}

void traffic_stop(struct traffic *t)
{
	t->limit = t->counts.intended;
	t->next_due = NEVER;
}

bool traffic_settled(const struct traffic *t)
{
	const struct traffic_counts *n = &t->counts;

	return n->completed + n->errors + n->lost + n->abandoned == n->intended;
}

uint64_t traffic_in_flight(const struct traffic *t)
{
	uint64_t in_flight = 0;

	for (uint32_t i = 0; i < t->connection_count; i++) {
		const struct connection *c = &t->connections[i];

		if (c->fd >= 0)
			in_flight += c->sent - c->answered;
	}
	return in_flight;
}

uint64_t traffic_unsent(const struct traffic *t)
{
	uint64_t unsent = t->counts.abandoned;

	for (uint32_t i = 0; i < t->connection_count; i++) {
		const struct connection *c = &t->connections[i];

		if (c->fd >= 0)
			unsent += due_on(t, c) - c->sent;
	}
	return unsent;
}

static void lose(struct traffic *t, struct connection *c)
{
	uint64_t due = due_on(t, c);

	for (uint64_t k = c->answered; k < c->sent; k++)
		record_of(t, c, k)->status = QUERY_LOST;
	t->counts.lost += c->sent - c->answered;
	t->counts.abandoned += due - c->sent;
	t->alive--;
	if (c->parser.error_bytes)
		memcpy(t->last_words, c->parser.error, sizeof(t->last_words));
	connection_close(c);
}

static void settle(void *context, struct connection *c, enum reply_kind kind, uint64_t now)
{
	struct traffic *t = context;
	struct query_record *record = record_of(t, c, c->answered);

	record->completed_after = delta_between(record->intended, now) & DELTA_NEVER;
	switch (kind) {
	case REPLY_NIL:
		record->miss = record->operation == OPERATION_GET;
		t->counts.misses += record->miss;
		/* fall through */
	case REPLY_OK:
	case REPLY_INCOMPLETE:
		record->status = QUERY_OK;
		t->counts.completed++;
		return;
	case REPLY_ERROR:
		error_tally_add(&t->errors, c->parser.error);
		break;
	case REPLY_INVALID:
		error_tally_add(&t->errors, "invalid");
		break;
	}
	record->status = QUERY_ERROR;
	t->counts.errors++;
}

static void receive(struct traffic *t, struct connection *c)
{
	if (connection_receive(c, settle, t) == CONNECTION_LOST)
		lose(t, c);
}

static void encode(struct traffic *t, const struct connection *c, uint64_t due)
{
	request_batch_clear(&t->batch);
	for (uint64_t k = c->sent; k < due && !request_batch_full(&t->batch); k++) {
		struct query query = workload_query(&t->workload, sequence_of(t, c, k));

		request_batch_add(&t->batch, &t->format, &query);
	}
}

/* Sends what is due on the connection until its socket is full. */
static void flush(struct traffic *t, struct connection *c)
{
	uint64_t due = due_on(t, c);

	while (c->sent < due && !c->full) {
		uint64_t before = c->sent;

		encode(t, c, due);

		/* Before the call: the server may have read the request by the time it returns. */
		uint64_t now = clock_now();

		if (connection_send(c, &t->batch) == CONNECTION_LOST) {
			/* Replies that came before the end still count. */
			connection_receive(c, settle, t);
			lose(t, c);
			return;
		}
		for (uint64_t k = before; k < c->sent; k++) {
			struct query_record *record = record_of(t, c, k);

			record->sent_after = delta_between(record->intended, now) & DELTA_NEVER;
			record->status = QUERY_IN_FLIGHT;
		}
		t->counts.sent += c->sent - before;
	}
}

/* What waits from here on waits for the server, not for the generator. */
static void hold(struct traffic *t, const struct connection *c)
{
	for (uint64_t k = c->sent; k < due_on(t, c); k++)
		record_of(t, c, k)->held = 1;
}

void traffic_dispatch(struct traffic *t, uint64_t now)
{
	uint64_t first = t->counts.intended;

	while (t->next_due <= now) {
		uint64_t sequence = t->counts.intended++;
		struct connection *c = &t->connections[sequence % t->connection_count];

		t->log->records[sequence] = (struct query_record){
		    .intended = t->next_due,
		    .sent_after = DELTA_NEVER,
		    .connection = c->index & (CONNECTIONS_MAX - 1),
		    .completed_after = DELTA_NEVER,
		    .operation = workload_operation(&t->workload, sequence) & 15,
		    .status = QUERY_UNSENT,
		    .held = c->full,
		};
		t->counts.abandoned += c->fd < 0;
		schedule_next(t);
	}

	/* All that is due on one connection goes out in one call. */
	uint64_t touched = t->counts.intended - first;

	if (touched > t->connection_count)
		touched = t->connection_count;
	for (uint64_t sequence = first; sequence < first + touched; sequence++) {
		struct connection *c = &t->connections[sequence % t->connection_count];

		if (c->fd < 0 || c->full)
			continue;
		flush(t, c);
		if (c->full)
			hold(t, c);
	}
}

void traffic_handle(struct traffic *t, uint32_t index, uint32_t events)
{
	struct connection *c = &t->connections[index];

	if (c->fd < 0)
		return;
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		receive(t, c);
	if (c->fd >= 0 && c->full && events & EPOLLOUT) {
		c->full = false;
		flush(t, c);
	}
}

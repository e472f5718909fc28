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

/*
 * Until a query is sent, its record keeps how long the connection had been held when it was due:
 * the difference to the same sum at the sending is how long the query was. Of a hold that was
 * under way then, only what lay before that time comes off, and it is known when the hold ends.
 */
static void end_hold(struct traffic *t, struct connection *c, uint64_t until)
{
	struct hold *hold = &c->hold;

	hold_end(hold, until);
	t->held_connections--;
	for (uint64_t k = due_on(t, c); k-- > c->sent;) {
		struct query_record *record = record_of(t, c, k);
		uint64_t due = record->intended;

		if (due <= hold->last_since)
			break;
		if (due > hold->last_until)
			due = hold->last_until;
		record_set_held(record, record_held(record) + due - hold->last_since);
	}
}

static void lose(struct traffic *t, struct connection *c)
{
	uint64_t due = due_on(t, c);

	for (uint64_t k = c->answered; k < c->sent; k++)
		record_of(t, c, k)->status = QUERY_LOST;
	t->counts.lost += c->sent - c->answered;
	t->counts.abandoned += due - c->sent;
	t->alive--;
	if (c->hold.full)
		end_hold(t, c, clock_now());
	if (c->parser.error_bytes)
		memcpy(t->last_words, c->parser.error, sizeof(t->last_words));
	connection_close(c);
}

static void settle(void *context, struct connection *c, enum reply_kind kind,
		   const struct reply_time *time)
{
	struct traffic *t = context;
	struct query_record *record = record_of(t, c, c->answered);
	uint64_t sent = record->intended + record->sent_after, arrived = time->arrived;

	record->stamped = time->stamped && arrived + t->clock.error >= sent;
	if (!record->stamped)
		arrived = time->read;
	else if (arrived < sent)
		arrived = sent;
	record->completed_after = delta_between(record->intended, arrived) & DELTA_NEVER;
	record_set_read_delay(record, delta_between(arrived, time->read));
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
	if (connection_receive(c, &t->clock, settle, t) == CONNECTION_LOST)
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

	while (c->sent < due && !c->hold.full) {
		uint64_t before = c->sent;

		encode(t, c, due);

		/* Before the call: the server may have read the request by the time it returns. */
		uint64_t now = clock_now();

		if (connection_send(c, &t->batch) == CONNECTION_LOST) {
			/* Replies that came before the end still count. */
			connection_receive(c, &t->clock, settle, t);
			lose(t, c);
			return;
		}
		for (uint64_t k = before; k < c->sent; k++) {
			struct query_record *record = record_of(t, c, k);

			record->sent_after = delta_between(record->intended, now) & DELTA_NEVER;
			record->status = QUERY_IN_FLIGHT;
			record_set_held(record, c->hold.total - record_held(record));
		}
		t->counts.sent += c->sent - before;
		t->held_connections += c->hold.full;
	}
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
		    .completed_after = DELTA_NEVER,
		    .operation = workload_operation(&t->workload, sequence) & 15,
		    .status = QUERY_UNSENT,
		};
		record_set_held(&t->log->records[sequence], hold_before(&c->hold, t->next_due));
		t->counts.abandoned += c->fd < 0;
		schedule_next(t);
	}

	/* All that is due on one connection goes out in one call. */
	uint64_t touched = t->counts.intended - first;

	if (touched > t->connection_count)
		touched = t->connection_count;
	for (uint64_t sequence = first; sequence < first + touched; sequence++) {
		struct connection *c = &t->connections[sequence % t->connection_count];

		if (c->fd >= 0)
			flush(t, c);
	}
}

void traffic_room(struct traffic *t, uint32_t index, uint64_t until)
{
	struct connection *c = &t->connections[index];

	if (c->fd >= 0 && c->hold.full)
		end_hold(t, c, until);
}

void traffic_end(struct traffic *t, uint64_t now)
{
	for (uint32_t i = 0; i < t->connection_count; i++) {
		struct connection *c = &t->connections[i];

		traffic_room(t, i, now);
		for (uint64_t k = c->sent; k < due_on(t, c); k++) {
			struct query_record *record = record_of(t, c, k);

			record_set_held(record, c->hold.total - record_held(record));
		}
	}
}

void traffic_handle(struct traffic *t, uint32_t index, uint32_t events)
{
	struct connection *c = &t->connections[index];

	if (c->fd < 0)
		return;
	if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		receive(t, c);
	if (c->fd >= 0 && events & EPOLLOUT)
		flush(t, c);
}

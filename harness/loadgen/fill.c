/* SPDX-License-Identifier: Apache-2.0 */
#include "fill.h"

#include "clock.h"
#include "connection.h"
#include "fail.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/epoll.h>

struct filling {
	const struct options *options;
	struct workload workload;
	struct request_format format;
	struct request_batch batch;
	struct connection *connections;
	uint64_t written;
};

static uint64_t keys_on(const struct filling *f, const struct connection *c)
{
	uint64_t n = f->options->connections;

	return (f->options->keys + n - 1 - c->index) / n;
}

_Noreturn static void fail_lost(const struct filling *f)
{
	fail(EXIT_CHECK_FAILED,
	     "the server closed a connection after %" PRIu64 " of %" PRIu64 " keys", f->written,
	     f->options->keys);
}

static void top_up(struct filling *f, struct connection *c)
{
	uint64_t pipeline = f->options->pipeline;

	/* In halves, because a send for each reply would cost more than the request. */
	if (c->hold.full || c->sent - c->answered > pipeline / 2)
		return;

	uint64_t until = c->answered + pipeline, keys = keys_on(f, c);

	if (until > keys)
		until = keys;
	while (c->sent < until && !c->hold.full) {
		request_batch_clear(&f->batch);
		for (uint64_t k = c->sent; k < until && !request_batch_full(&f->batch); k++) {
			uint64_t sequence = c->index + k * f->options->connections;
			struct query query = workload_query(&f->workload, sequence);

			request_batch_add(&f->batch, &f->format, &query);
		}
		if (connection_send(c, &f->batch) == CONNECTION_LOST)
			fail_lost(f);
	}
}

static void count(void *context, struct connection *c, enum reply_kind kind,
		  const struct reply_time *time)
{
	struct filling *f = context;

	(void)time;
	if (kind == REPLY_ERROR)
		fail(EXIT_CHECK_FAILED, "the server refused a SET: %s", c->parser.error);
	if (kind == REPLY_INVALID)
		fail(EXIT_CHECK_FAILED, "the server replied with something that is not RESP");
	f->written++;
}

static void print_progress(uint64_t keys)
{
	printf("{\"event\":\"progress\",\"keys\":%" PRIu64 "}\n", keys);
	fflush(stdout);
}

static void write_keys(struct filling *f, int epoll)
{
	uint64_t next_progress = clock_now() + NS_PER_S;

	for (uint32_t i = 0; i < f->options->connections; i++)
		top_up(f, &f->connections[i]);
	while (f->written < f->options->keys) {
		struct epoll_event events[64];
		int ready = epoll_wait(epoll, events, 64, 1000);

		for (int i = 0; i < ready; i++) {
			struct connection *c = &f->connections[events[i].data.u64];

			if (events[i].events & EPOLLOUT)
				c->hold.full = false;
			if (connection_receive(c, NULL, count, f) == CONNECTION_LOST)
				fail_lost(f);
			top_up(f, c);
		}
		if (clock_now() >= next_progress) {
			print_progress(f->written);
			next_progress += NS_PER_S;
		}
	}
}

int fill(const struct options *options)
{
	static struct filling f;
	struct value_pool values =
	    value_pool_of(options->value_bytes, options->value_entropy, options->seed);

	f.options = options;
	f.workload = (struct workload){
	    .seed = options->seed,
	    .sets = 1,
	    .keys = keys_uniform(options->keys),
	    .sequential = true,
	};
	f.format = request_format_of(values, (enum key_naming)options->key_names);

	int epoll = epoll_create1(EPOLL_CLOEXEC);

	f.connections = connections_open(options->host, (uint16_t)options->port,
					 (uint32_t)options->connections);
	for (uint32_t i = 0; i < options->connections; i++)
		connection_watch(&f.connections[i], epoll);

	uint64_t start = clock_now();

	write_keys(&f, epoll);

	double seconds = (double)(clock_now() - start) / (double)NS_PER_S;

	printf("{\"event\":\"end\",\"keys\":%" PRIu64 ",\"seconds\":%.6f,\"keys_per_s\":%.0f}\n",
	       f.written, seconds, (double)f.written / seconds);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "run.h"

#include "clock.h"
#include "control.h"
#include "fail.h"
#include "idle.h"
#include "process.h"
#include "summary.h"
#include "traffic.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS 64
#define CONTROL UINT64_MAX

/* Time for the start line and the last page to settle before the first query is due. */
#define LEAD_NS (10 * NS_PER_MS)

/* A full socket is looked at this often: no more of a hold can be the generator's own sleep. */
#define HOLD_LOOK_NS (1 * NS_PER_MS)

struct loop {
	struct traffic *traffic;
	struct control control;
	int epoll;
	uint64_t spin_ns, drain_ns;
	uint64_t next_progress;
	uint64_t looked;   /* when every socket that is held now was last known to be full */
	uint64_t waited;   /* when the last wait began */
	uint64_t wanted;   /* when it was to be over */
	uint64_t deadline; /* of the drain; NEVER while queries are still scheduled */
};

static void print_start(uint64_t origin)
{
	printf("{\"event\":\"start\",\"start_ns\":%" PRIu64 "}\n", origin);
	fflush(stdout);
}

/* A reader that has stalled must not stall the load: such a line is left out. */
static void print_unless_blocked(const char *line, size_t bytes)
{
	struct pollfd output = {.fd = STDOUT_FILENO, .events = POLLOUT};

	if (poll(&output, 1, 0) == 1 && write(STDOUT_FILENO, line, bytes) < 0)
		return;
}

static void print_progress(const struct traffic_counts *counts, uint64_t now)
{
	char line[256];
	int bytes =
	    snprintf(line, sizeof(line),
		     "{\"event\":\"progress\",\"t_ns\":%" PRIu64 ",\"intended\":%" PRIu64
		     ",\"sent\":%" PRIu64 ",\"completed\":%" PRIu64 ",\"errors\":%" PRIu64 "}\n",
		     now, counts->intended, counts->sent, counts->completed, counts->errors);

	print_unless_blocked(line, (size_t)bytes);
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* Sleeps until something happens or a query is nearly due, and polls through the rest. */
static int wait_for_events(struct loop *loop, struct epoll_event *events)
{
	uint64_t now = clock_now();
	uint64_t due = loop->traffic->next_due;
	uint64_t wake = due == NEVER ? NEVER : due - loop->spin_ns;

	wake = earlier(wake, earlier(loop->next_progress, loop->deadline));
	if (loop->traffic->held_connections)
		wake = earlier(wake, loop->looked + HOLD_LOOK_NS);
	loop->waited = now;
	loop->wanted = wake;

	uint64_t sleep = wake > now ? wake - now : 0;
	struct timespec timeout = {
	    .tv_sec = (time_t)(sleep / NS_PER_S),
	    .tv_nsec = (long)(sleep % NS_PER_S),
	};
	int ready = epoll_pwait2(loop->epoll, events, EVENTS, &timeout, NULL);

	if (ready < 0 && errno != EINTR)
		fail(EXIT_ENVIRONMENT,
		     "cannot wait with epoll_pwait2, which is in Linux since 5.11: %s",
		     strerror(errno));
	return ready;
}

/*
 * Ends the holds of the sockets that have room again. The room may have come at any time since
 * they were last looked at. What passed after this loop should have looked is its own lateness,
 * as it is when the process was stopped, and never the server's.
 */
static void end_holds(struct loop *loop, const struct epoll_event *events, int ready, uint64_t now)
{
	uint64_t until = earlier(now, loop->wanted);

	if (until < loop->looked)
		until = loop->looked;
	for (int i = 0; i < ready; i++)
		if (events[i].data.u64 != CONTROL && events[i].events & EPOLLOUT)
			traffic_room(loop->traffic, (uint32_t)events[i].data.u64, until);
	/*
	 * With more events than fit, a socket that is not among them may have room as well. The
	 * kernel looked after the wait had begun; how long before now is not known.
	 */
	if (ready < EVENTS)
		loop->looked = until > loop->waited ? until : loop->waited;
}

static void handle(struct loop *loop, const struct epoll_event *event)
{
	if (event->data.u64 != CONTROL)
		traffic_handle(loop->traffic, (uint32_t)event->data.u64, event->events);
	else if (control_read(&loop->control))
		traffic_stop(loop->traffic);
}

static void begin_drain(struct loop *loop, uint64_t now)
{
	loop->deadline = now + loop->drain_ns;
	control_close(&loop->control, loop->epoll);
}

static bool is_over(struct loop *loop, uint64_t now)
{
	const struct traffic *traffic = loop->traffic;

	if (traffic->alive == 0)
		return true;
	if (traffic->next_due != NEVER)
		return false;
	if (loop->deadline == NEVER)
		begin_drain(loop, now);
	return traffic_settled(traffic) || now >= loop->deadline;
}

static void measure(struct loop *loop)
{
	struct traffic *traffic = loop->traffic;

	for (;;) {
		struct epoll_event events[EVENTS];
		int ready = wait_for_events(loop, events);
		uint64_t now = clock_now();

		/* Interrupted, as by a stop of the process: which sockets have room is not known.
		 */
		if (ready < 0)
			continue;
		end_holds(loop, events, ready, now);
		stamp_clock_follow(&traffic->clock, now);
		/* Sends come first, and come again between replies that take their time. */
		traffic_dispatch(traffic, now);
		for (int i = 0; i < ready; i++) {
			handle(loop, &events[i]);
			traffic_dispatch(traffic, clock_now());
		}
		if (now >= loop->next_progress) {
			print_progress(&traffic->counts, now);
			loop->next_progress += NS_PER_S;
		}
		if (is_over(loop, now))
			return;
	}
}

static int conclude(const struct summary *summary, const struct traffic *traffic)
{
	if (!summary->conserved) {
		complain("the counts do not add up: the log cannot be trusted");
		return EXIT_CHECK_FAILED;
	}
	if (traffic->alive < traffic->connection_count)
		complain("the server closed %" PRIu32 " of %" PRIu32 " connections%s%s",
			 traffic->connection_count - traffic->alive, traffic->connection_count,
			 *traffic->last_words ? "; its last error: " : "", traffic->last_words);
	return summary->server_gone ? EXIT_CHECK_FAILED : 0;
}

static void open_traffic(struct traffic *traffic, const struct options *options, int epoll)
{
	uint32_t count = (uint32_t)options->connections;

	traffic->workload = options_workload(options);
	traffic->arrivals = arrivals_of(options->arrivals, options->rate, options->seed);
	traffic->format = request_format_of(
	    value_pool_of(options->value_bytes, options->value_entropy, options->seed), KEYS_OURS);
	traffic->limit = options->queries;
	traffic->connection_count = count;
	traffic->connections = connections_open(options->host, (uint16_t)options->port, count);
	for (uint32_t i = 0; i < count; i++) {
		connection_stamp_arrivals(&traffic->connections[i]);
		connection_watch(&traffic->connections[i], epoll);
	}
	traffic->clock = stamp_clock_open();
}

int run(const struct options *options)
{
	static struct traffic traffic;
	struct loop loop = {
	    .traffic = &traffic,
	    .epoll = epoll_create1(EPOLL_CLOEXEC),
	    .spin_ns = options->spin_us * NS_PER_US,
	    .drain_ns = options->drain_ms * NS_PER_MS,
	    .deadline = NEVER,
	};

	loop.control = control_open(loop.epoll, CONTROL);
	open_traffic(&traffic, options, loop.epoll);
	process_schedule(options->fifo, options->cpu);

	static uint64_t round_trips[IDLE_MAX];
	size_t idle = idle_round_trips(&traffic, options->idle, round_trips);

	struct query_log log = query_log_open(options->log, options->queries);

	traffic.log = &log;
	process_lock_memory();

	uint64_t origin = clock_now() + LEAD_NS;
	struct rusage before, after;

	print_start(origin);
	traffic_start(&traffic, origin);
	loop.looked = origin;
	loop.next_progress = origin + NS_PER_S;
	getrusage(RUSAGE_SELF, &before);
	measure(&loop);
	getrusage(RUSAGE_SELF, &after);

	uint64_t end = clock_now();

	traffic_end(&traffic, end);
	log.count = traffic.counts.intended;
	query_log_write(&log, &(struct query_log_origin){
				  .start = origin,
				  .seed = options->seed,
				  .connections = traffic.connection_count,
				  .rate = options->rate,
			      });

	struct summary summary = summary_of(&traffic, options->rate);

	summary.idle = quantiles_of(round_trips, idle);
	summary.end = end;
	summary.cost = cost_between(&before, &after);
	summary_print(&summary, &traffic.errors);
	return conclude(&summary, &traffic);
}

// SPDX-License-Identifier: Apache-2.0
#include "watch.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "conversation.h"
#include "event_log.h"
#include "windows.h"

#define ARMED_POLL_MS 20
#define IDLE_POLL_MS 200

enum source {
	SOURCE_INPUT,
	SOURCE_SIGNAL,
	SOURCE_SERVER,
	SOURCES,
};

struct watch {
	struct chain chain;
	struct conversation conversation;
	struct event_log log;
	struct windows windows;
	struct ring_buffer *ring;
	struct pollfd sources[SOURCES];
	/* The fork that opened the window has come back. */
	bool forked;
	const char *ended;
	enum exit_code code;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static int take_event(void *context, void *data, size_t length)
{
	struct watch *watch = context;
	const struct event *event = data;

	(void)length;
	event_log_append(&watch->log, event);
	windows_take(&watch->windows, event);
	if ((event->kind == EVENT_FORK || event->kind == EVENT_FORK_UNMEASURED) &&
	    chain_watches_child(&watch->chain, event->aux))
		watch->forked = true;
	return 0;
}

static void disarm(struct watch *watch)
{
	bool armed = watch->chain.armed;

	chain_disarm(&watch->chain);
	ring_buffer__consume(watch->ring);
	if (armed)
		say_disarmed(now_ns());
}

static void take_events(struct watch *watch)
{
	ring_buffer__consume(watch->ring);
	if (watch->forked)
		chain_forked(&watch->chain);
	watch->forked = false;
	/* The programs closed the gate: what was attached for this window has served. */
	if (watch->chain.armed && !chain_gate_is_open(&watch->chain))
		disarm(watch);
}

static void arm(struct watch *watch)
{
	uint64_t from_ns = now_ns();

	watch->code = chain_arm(&watch->chain);
	if (watch->code)
		watch->ended = "arming failed";
	else
		say_armed(from_ns, now_ns());
}

static void obey(struct watch *watch, enum command command)
{
	switch (command) {
	case COMMAND_ARM:
		arm(watch);
		break;
	case COMMAND_DISARM:
		disarm(watch);
		break;
	case COMMAND_STOP:
		watch->ended = "stop";
		break;
	case COMMAND_END_OF_INPUT:
		watch->ended = "end of input";
		break;
	case COMMAND_UNKNOWN:
		fail(EXIT_BAD_INPUT, "a command that is not arm, disarm or stop was ignored.");
		break;
	case COMMAND_NONE:
		break;
	}
}

static void read_commands(struct watch *watch)
{
	enum command command;

	do {
		command = conversation_read(&watch->conversation);
		obey(watch, command);
	} while (command != COMMAND_NONE && !watch->ended);
}

static void follow(struct watch *watch)
{
	while (!watch->ended) {
		int timeout = watch->chain.armed ? ARMED_POLL_MS : IDLE_POLL_MS;

		poll(watch->sources, SOURCES, timeout);
		take_events(watch);
		if (watch->sources[SOURCE_INPUT].revents)
			read_commands(watch);
		if (!watch->ended && watch->sources[SOURCE_SIGNAL].revents)
			watch->ended = "signal";
		if (!watch->ended && watch->sources[SOURCE_SERVER].revents)
			watch->ended = "server ended";
	}
}

static int open_signals(void)
{
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	/* A reader that went away shows as the end of input. */
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	return signalfd(-1, &signals, SFD_CLOEXEC);
}

static enum exit_code finish(struct watch *watch, bool strict)
{
	struct losses losses;
	int error;

	disarm(watch);
	chain_detach(&watch->chain);
	ring_buffer__consume(watch->ring);
	error = event_log_close(&watch->log);
	losses = say_end(&watch->chain, watch->log.records, now_ns(), watch->ended);
	if (watch->code)
		return watch->code;
	if (error)
		return fail(EXIT_CHECK_FAILED, "the event log %s could not be written: %s.",
			    watch->log.path, strerror(-error));
	if (!losses.dropped && !losses.unmatched)
		return EXIT_OK;
	fail(EXIT_CHECK_FAILED,
	     "%" PRIu64 " events were dropped (raise --buffer-mib or the thresholds) and %" PRId64
	     " calls were never seen to return.",
	     losses.dropped, losses.unmatched);
	return strict ? EXIT_CHECK_FAILED : EXIT_OK;
}

static enum exit_code require_window(const struct chain *chain)
{
	if (!chain->choices[MEASURE_FORK].candidate ||
	    !chain->choices[MEASURE_WINDOW_END].candidate)
		return fail(EXIT_NO_ENVIRONMENT, "no probe can see the window begin and end on "
						 "this kernel: see --dry-run for each errno.");
	return EXIT_OK;
}

static enum exit_code open_outputs(struct watch *watch, const char *path, uint64_t attach_ns)
{
	int error =
	    event_log_open(&watch->log, path, (uint32_t)watch->chain.options.server, attach_ns);

	if (error)
		return fail(EXIT_BAD_INPUT, "the event log cannot be created at %s: %s.", path,
			    strerror(-error));
	watch->ring = ring_buffer__new(chain_landmarks_fd(&watch->chain), take_event, watch, NULL);
	if (!watch->ring ||
	    ring_buffer__add(watch->ring, chain_events_fd(&watch->chain), take_event, watch))
		return fail(EXIT_NO_ENVIRONMENT, "the ring buffer cannot be mapped: %s.",
			    strerror(errno));
	return EXIT_OK;
}

static enum exit_code run(struct watch *watch, const struct options *options)
{
	uint64_t attach_ns = now_ns();
	enum exit_code code = chain_open(&watch->chain, &options->chain);

	if (code)
		return code;
	if (options->dry_run) {
		say_header(&watch->chain, attach_ns);
		return EXIT_OK;
	}
	code = require_window(&watch->chain);
	if (!code)
		code = open_outputs(watch, options->events_path, attach_ns);
	if (code)
		return code;
	say_ready(&watch->chain, attach_ns);
	follow(watch);
	return finish(watch, options->strict);
}

enum exit_code watch(const struct options *options, int server_pidfd)
{
	static struct watch watch;
	enum exit_code code;

	watch.sources[SOURCE_INPUT] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
	watch.sources[SOURCE_SIGNAL] = (struct pollfd){.fd = open_signals(), .events = POLLIN};
	watch.sources[SOURCE_SERVER] = (struct pollfd){.fd = server_pidfd, .events = POLLIN};
	code = run(&watch, options);
	ring_buffer__free(watch.ring);
	chain_close(&watch.chain);
	close(watch.sources[SOURCE_SIGNAL].fd);
	return code;
}

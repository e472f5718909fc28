/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A RESP server whose every delay is known: the truth against which the generator is tested.
 * It accepts on a free loopback port, prints the port, and on SIGTERM writes one line a request:
 * connection, key, received, replied (CLOCK_MONOTONIC, ns).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MAX_CONNECTIONS 1024
#define MAX_REQUESTS 4000000
#define INPUT_BYTES (1 << 20)
#define LISTENER UINT64_MAX
#define SIGNALS (UINT64_MAX - 1)
#define MS 1000000ULL

enum mode {
	DELAY,
	DELAY_BY_KEY,
	SERVICE,
	PAUSE,
	CLOSE,
	GARBAGE,
	ERROR,
	LOADING,
	SILENT,
	SLOW,
	NIL
};

static const char *const mode_names[] = {"delay",  "delay-by-key", "service", "pause",
					 "close",  "garbage",      "error",   "loading",
					 "silent", "slow",         "nil"};

struct request {
	uint32_t connection;
	char key[9];
	uint64_t received, ready, replied;
	uint32_t next; /* of the same connection */
};

struct client {
	int fd;
	char *input;
	size_t filled;
	uint32_t waiting; /* its first request without a reply */
	uint32_t last;
	uint64_t last_ready;
};

static enum mode mode;
static uint64_t argument, after;
static struct client clients[MAX_CONNECTIONS];
static uint32_t client_count;
static struct request *requests;
static uint32_t request_count;
static uint64_t server_ready, pause_at = UINT64_MAX;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

static void hang_up(struct client *client)
{
	close(client->fd);
	client->fd = -1;
	client->waiting = 0;
}

static uint64_t ready_time(struct client *client, const struct request *request)
{
	uint64_t ready = request->received;

	if (mode == DELAY)
		ready += argument;
	else if (mode == DELAY_BY_KEY) /* 0, 1 or 10 ms by the key's last digit modulo 3 */
		ready += (uint64_t[]){0, 1 * MS, 10 * MS}[strtoul(request->key, NULL, 16) % 3];
	else if (mode == SERVICE)
		ready = server_ready = (server_ready > ready ? server_ready : ready) + argument;
	if (ready < client->last_ready)
		ready = client->last_ready;
	return client->last_ready = ready;
}

static const char *reply_text(uint32_t request)
{
	if (request < after)
		return "+OK\r\n";
	switch (mode) {
	case CLOSE:
		return "+O";
	case GARBAGE:
		return "HTTP/1.1 400 Bad Request\r\n\r\n";
	case ERROR:
		return "-ERR no such luck\r\n";
	case LOADING:
		return "-LOADING the dataset\r\n";
	case NIL:
		return "$-1\r\n";
	default:
		return "+OK\r\n";
	}
}

/* In one send, as a real server does: a stall must not be followed by a slow catching-up. */
static void reply_ready(struct client *client, uint64_t now)
{
	static char text[1 << 16];
	size_t bytes = 0;
	bool last = false;

	while (client->waiting && requests[client->waiting].ready <= now &&
	       bytes < sizeof(text) - 64) {
		struct request *request = &requests[client->waiting];
		uint32_t index = client->waiting - 1;
		const char *reply = reply_text(index);

		memcpy(text + bytes, reply, strlen(reply));
		bytes += strlen(reply);
		request->replied = now;
		client->waiting = request->next;
		if ((last = mode == CLOSE && index >= after))
			break;
	}
	if (send(client->fd, text, bytes, MSG_NOSIGNAL) < 0 || last)
		hang_up(client);
}

static void reply_due(void)
{
	for (uint32_t i = 0; i < client_count; i++) {
		uint64_t now = now_ns();

		while (clients[i].waiting && requests[clients[i].waiting].ready <= now)
			reply_ready(&clients[i], now);
	}
}

static uint64_t next_ready(void)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i < client_count; i++)
		if (clients[i].waiting && requests[clients[i].waiting].ready < next)
			next = requests[clients[i].waiting].ready;
	return next;
}

static void take_request(struct client *client, const char *key, uint64_t received)
{
	uint32_t index = ++request_count; /* 0 means none */
	struct request *request = &requests[index];

	if (index == MAX_REQUESTS)
		exit(3);
	request->connection = (uint32_t)(client - clients);
	memcpy(request->key, key, 8);
	request->received = received;
	request->ready = ready_time(client, request);
	if (mode == PAUSE && index == 1)
		pause_at = received + 1000 * MS;
	if (mode == SILENT && index > after)
		return;
	if (client->waiting)
		requests[client->last].next = index;
	else
		client->waiting = index;
	client->last = index;
}

/* One command, "*N" bulk strings; returns its bytes, 0 while it is incomplete. */
static size_t parse(const char *at, const char *end, const char **key)
{
	const char *start = at, *line;
	long parts = 0;

	if (!(line = memchr(at, '\n', (size_t)(end - at))))
		return 0;
	parts = strtol(at + 1, NULL, 10);
	at = line + 1;
	for (long i = 0; i < parts; i++) {
		if (at >= end || !(line = memchr(at, '\n', (size_t)(end - at))))
			return 0;
		long bytes = strtol(at + 1, NULL, 10);

		at = line + 1;
		if (end - at < bytes + 2)
			return 0;
		if (i == 1)
			*key = at;
		at += bytes + 2;
	}
	return (size_t)(at - start);
}

static void read_requests(struct client *client)
{
	size_t room = mode == SLOW ? 4096 : INPUT_BYTES - client->filled;

	if (room > INPUT_BYTES - client->filled)
		room = INPUT_BYTES - client->filled;

	ssize_t count = recv(client->fd, client->input + client->filled, room, MSG_DONTWAIT);
	uint64_t received = now_ns();

	if (count < 0 && errno == EAGAIN)
		return;
	if (count <= 0) {
		hang_up(client);
		return;
	}
	client->filled += (size_t)count;
	if (mode == SLOW)
		usleep((useconds_t)argument / 1000);

	const char *at = client->input, *end = client->input + client->filled, *key = "";
	size_t bytes;

	while (at < end && (bytes = parse(at, end, &key))) {
		take_request(client, key, received);
		at += bytes;
	}
	memmove(client->input, at, (size_t)(end - at));
	client->filled = (size_t)(end - at);
}

static void accept_client(int listener, int epoll)
{
	struct client *client = &clients[client_count];
	int on = 1;

	client->fd = accept(listener, NULL, NULL);
	client->input = malloc(INPUT_BYTES);
	if (client->fd < 0 || !client->input || client_count == MAX_CONNECTIONS - 1)
		exit(3);
	setsockopt(client->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	epoll_ctl(epoll, EPOLL_CTL_ADD, client->fd,
		  &(struct epoll_event){.events = EPOLLIN, .data.u64 = client_count++});
}

static int listen_on_free_port(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
				      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof(address);
	int listener = socket(AF_INET, SOCK_STREAM, 0), bytes = 8192;

	if (mode == SLOW)
		setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
	if (bind(listener, (void *)&address, length) || listen(listener, 1024) ||
	    getsockname(listener, (void *)&address, &length))
		exit(3);
	printf("%d\n", ntohs(address.sin_port));
	fflush(stdout);
	return listener;
}

static int block_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	return signalfd(-1, &set, 0);
}

static void write_log(const char *path)
{
	FILE *log = fopen(path, "w");

	if (!log)
		exit(3);
	for (uint32_t i = 1; i <= request_count; i++)
		fprintf(log, "%u %s %llu %llu\n", requests[i].connection, requests[i].key,
			(unsigned long long)requests[i].received,
			(unsigned long long)requests[i].replied);
	fclose(log);
}

static void serve(int listener, int epoll)
{
	for (;;) {
		struct epoll_event events[64];
		uint64_t now = now_ns(), next = next_ready();
		uint64_t wait = next == UINT64_MAX ? 100 * MS : next > now ? next - now : 0;
		struct timespec timeout = {.tv_sec = (time_t)(wait / 1000000000ULL),
					   .tv_nsec = (long)(wait % 1000000000ULL)};
		int ready = epoll_pwait2(epoll, events, 64, &timeout, NULL);

		for (int i = 0; i < ready; i++) {
			if (events[i].data.u64 == SIGNALS)
				return;
			if (events[i].data.u64 == LISTENER)
				accept_client(listener, epoll);
			else if (clients[events[i].data.u64].fd >= 0)
				read_requests(&clients[events[i].data.u64]);
		}
		if (now_ns() >= pause_at) {
			usleep((useconds_t)(argument / 1000));
			pause_at = UINT64_MAX;
		}
		reply_due();
	}
}

/* stub_server MODE ARGUMENT_NS AFTER LOG: hostile modes start with the request numbered AFTER. */
int main(int argc, char **argv)
{
	if (argc != 5)
		return 2;
	while (strcmp(argv[1], mode_names[mode]))
		mode++;
	argument = strtoull(argv[2], NULL, 10);
	after = strtoull(argv[3], NULL, 10);
	requests = calloc(MAX_REQUESTS, sizeof(*requests));
	prctl(PR_SET_TIMERSLACK, 1);
	prctl(PR_SET_PDEATHSIG, SIGKILL);

	int epoll = epoll_create1(0), listener = listen_on_free_port();

	epoll_ctl(epoll, EPOLL_CTL_ADD, listener,
		  &(struct epoll_event){.events = EPOLLIN, .data.u64 = LISTENER});
	epoll_ctl(epoll, EPOLL_CTL_ADD, block_signals(),
		  &(struct epoll_event){.events = EPOLLIN, .data.u64 = SIGNALS});
	serve(listener, epoll);
	write_log(argv[4]);
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "connection.h"

#include "clock.h"
#include "fail.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define CONNECT_TIMEOUT_S 5
#define RECEIVE_BYTES (64U << 10)
#define CONTROL_BYTES CMSG_SPACE(sizeof(struct scm_timestamping))

/* Descriptors besides the connections: standard streams, epoll, signals, the log. */
#define OTHER_DESCRIPTORS 16

struct address {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	};
	socklen_t bytes;
};

static struct address address_of(const char *host, uint16_t port)
{
	struct address address = {0};

	if (inet_pton(AF_INET, host, &address.v4.sin_addr) == 1) {
		address.v4.sin_family = AF_INET;
		address.v4.sin_port = htons(port);
		address.bytes = sizeof(address.v4);
	} else if (inet_pton(AF_INET6, host, &address.v6.sin6_addr) == 1) {
		address.v6.sin6_family = AF_INET6;
		address.v6.sin6_port = htons(port);
		address.bytes = sizeof(address.v6);
	} else {
		fail(EXIT_BAD_INPUT, "--host must be an IPv4 or IPv6 address, not '%s'", host);
	}
	return address;
}

static void allow_descriptors(uint32_t connections)
{
	struct rlimit limit;
	rlim_t needed = (rlim_t)connections + OTHER_DESCRIPTORS;

	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur >= needed)
		return;
	limit.rlim_cur = needed;
	if (needed > limit.rlim_max || setrlimit(RLIMIT_NOFILE, &limit))
		fail(EXIT_ENVIRONMENT,
		     "%u connections need %llu file descriptors, but the limit is %llu (ulimit -n)",
		     connections, (unsigned long long)needed, (unsigned long long)limit.rlim_max);
}

static int connect_to(const struct address *address, const char *host, uint16_t port)
{
	int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int on = 1;
	struct timeval timeout = {.tv_sec = CONNECT_TIMEOUT_S};

	if (fd < 0)
		fail(EXIT_ENVIRONMENT, "cannot make a socket: %s", strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	if (connect(fd, &address->any, address->bytes))
		fail(EXIT_ENVIRONMENT, "cannot connect to %s port %u: %s", host, port,
		     errno == EINPROGRESS ? "no answer" : strerror(errno));
	return fd;
}

struct connection *connections_open(const char *host, uint16_t port, uint32_t count)
{
	struct address address = address_of(host, port);
	struct connection *connections = calloc(count, sizeof(*connections));

	if (!connections)
		fail(EXIT_ENVIRONMENT, "no memory for %u connections", count);
	allow_descriptors(count);
	for (uint32_t i = 0; i < count; i++) {
		connections[i].index = i;
		connections[i].fd = connect_to(&address, host, port);
	}
	return connections;
}

void connection_watch(const struct connection *connection, int epoll)
{
	struct epoll_event event = {
	    .events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
	    .data.u64 = connection->index,
	};

	if (epoll_ctl(epoll, EPOLL_CTL_ADD, connection->fd, &event))
		fail(EXIT_ENVIRONMENT, "cannot watch a connection: %s", strerror(errno));
}

void connection_stamp_arrivals(const struct connection *connection)
{
	int wanted = SOF_TIMESTAMPING_RX_SOFTWARE | SOF_TIMESTAMPING_SOFTWARE;

	/* A refusal shows as replies without a stamp, which the summary counts. */
	setsockopt(connection->fd, SOL_SOCKET, SO_TIMESTAMPING, &wanted, sizeof(wanted));
}

void connection_close(struct connection *connection)
{
	close(connection->fd);
	connection->fd = -1;
}

/* Leaves out the bytes that the kernel took earlier. */
static void skip(struct msghdr *message, size_t bytes)
{
	while (bytes && bytes >= message->msg_iov->iov_len) {
		bytes -= message->msg_iov->iov_len;
		message->msg_iov++;
		message->msg_iovlen--;
	}
	message->msg_iov->iov_base = (char *)message->msg_iov->iov_base + bytes;
	message->msg_iov->iov_len -= bytes;
}

enum connection_state connection_send(struct connection *connection, struct request_batch *batch)
{
	struct msghdr message = {.msg_iov = batch->part, .msg_iovlen = batch->parts};

	skip(&message, connection->head_sent);

	ssize_t taken = sendmsg(connection->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);

	if (taken < 0 && errno != EAGAIN)
		return CONNECTION_LOST;

	size_t bytes = connection->head_sent + (taken > 0 ? (size_t)taken : 0);
	size_t whole = 0;

	while (whole < batch->requests && bytes >= batch->bytes[whole])
		bytes -= batch->bytes[whole++];
	connection->sent += whole;
	connection->head_sent = bytes;
	if (whole < batch->requests)
		hold_begin(&connection->hold, clock_now());
	return CONNECTION_ALIVE;
}

/* The kernel's stamp of a message on our clock; 0 where it has none. */
static uint64_t stamp_of(struct msghdr *message, const struct stamp_clock *clock)
{
	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part;
	     part = CMSG_NXTHDR(message, part)) {
		struct scm_timestamping stamps;

		if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_TIMESTAMPING)
			continue;
		memcpy(&stamps, CMSG_DATA(part), sizeof(stamps));
		if (stamps.ts[0].tv_sec)
			return stamp_clock_monotonic(clock, &stamps.ts[0]);
	}
	return 0;
}

/* Hands on each whole reply; returns whether the connection can be used any more. */
static enum connection_state parse(struct connection *connection, const char *data, size_t bytes,
				   const struct reply_time *time, reply_handler *handler,
				   void *context)
{
	for (size_t at = 0; at < bytes;) {
		enum reply_kind kind;

		at += reply_parse(&connection->parser, data + at, bytes - at, &kind);
		if (kind == REPLY_INCOMPLETE)
			break;
		/* A reply to nothing leaves no way to tell which query the next one is for. */
		if (connection->answered == connection->sent)
			return CONNECTION_LOST;
		handler(context, connection, kind, time);
		connection->answered++;
		if (kind == REPLY_INVALID)
			return CONNECTION_LOST;
	}
	return CONNECTION_ALIVE;
}

enum connection_state connection_receive(struct connection *connection,
					 const struct stamp_clock *clock, reply_handler *handler,
					 void *context)
{
	static char buffer[RECEIVE_BYTES];

	for (;;) {
		_Alignas(struct cmsghdr) char control[CONTROL_BYTES];
		struct iovec part = {buffer, sizeof(buffer)};
		struct msghdr message = {
		    .msg_iov = &part,
		    .msg_iovlen = 1,
		    .msg_control = control,
		    .msg_controllen = clock ? sizeof(control) : 0,
		};
		ssize_t count = recvmsg(connection->fd, &message, MSG_DONTWAIT);
		struct reply_time time = {.read = clock_now()};

		if (count < 0 && errno == EAGAIN)
			return CONNECTION_ALIVE;
		if (count <= 0)
			return CONNECTION_LOST;

		time.arrived = clock ? stamp_of(&message, clock) : 0;
		/* A stamp from the future is of a time of day that was set meanwhile. */
		time.stamped = time.arrived && time.arrived <= time.read + clock->error;
		if (!time.stamped || time.arrived > time.read)
			time.arrived = time.read;
		if (parse(connection, buffer, (size_t)count, &time, handler, context) ==
		    CONNECTION_LOST)
			return CONNECTION_LOST;
		/* A short read has emptied the socket: the next edge will tell. */
		if ((size_t)count < sizeof(buffer))
			return CONNECTION_ALIVE;
	}
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "control.h"

#include "fail.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct control control_open(int epoll, uint64_t data)
{
	struct control control = {0};
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	signal(SIGPIPE, SIG_IGN);
	control.signals = signalfd(-1, &signals, SFD_CLOEXEC);
	if (control.signals < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, control.signals, &event))
		fail(EXIT_ENVIRONMENT, "cannot wait for signals: %s", strerror(errno));

	/* EPERM: a file or /dev/null, where nobody is there to command. */
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, STDIN_FILENO, &event) && errno != EPERM &&
	    errno != EBADF)
		fail(EXIT_ENVIRONMENT, "cannot wait for standard input: %s", strerror(errno));
	return control;
}

static bool is_ready(int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};

	return poll(&ready, 1, 0) == 1;
}

static bool take_byte(struct control *control, char c)
{
	if (c != '\n') {
		if (control->line_bytes < CONTROL_LINE_BYTES - 1)
			control->line[control->line_bytes++] = c;
		return false;
	}
	control->line[control->line_bytes] = '\0';
	control->line_bytes = 0;
	return !strcmp(control->line, "stop");
}

bool control_read(struct control *control)
{
	char bytes[CONTROL_LINE_BYTES];

	if (is_ready(control->signals))
		return true;
	if (!is_ready(STDIN_FILENO))
		return false;

	ssize_t count = read(STDIN_FILENO, bytes, sizeof(bytes));

	if (count <= 0)
		return true;
	for (ssize_t i = 0; i < count; i++)
		if (take_byte(control, bytes[i]))
			return true;
	return false;
}

void control_close(struct control *control, int epoll)
{
	epoll_ctl(epoll, EPOLL_CTL_DEL, control->signals, NULL);
	epoll_ctl(epoll, EPOLL_CTL_DEL, STDIN_FILENO, NULL);
}

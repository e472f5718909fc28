// SPDX-License-Identifier: Apache-2.0
#include "windows.h"

#include "conversation.h"

static void take_fork(struct windows *windows, const struct event *fork)
{
	if (fork->kind == EVENT_FORK)
		say_fork(fork);
	else
		say_fork_unmeasured(fork);
	if (windows->early_end.context == fork->aux) {
		say_window_end(&windows->early_end);
		windows->early_end.context = 0;
	} else if (windows->opened < MAX_WINDOWS) {
		windows->open[windows->opened++] = fork->aux;
	}
}

static void take_end(struct windows *windows, const struct event *end)
{
	for (size_t i = 0; i < windows->opened; i++) {
		if (windows->open[i] != end->context)
			continue;
		windows->open[i] = windows->open[--windows->opened];
		say_window_end(end);
		return;
	}
	windows->early_end = *end;
}

void windows_take(struct windows *windows, const struct event *event)
{
	if (event->kind == EVENT_FORK || event->kind == EVENT_FORK_UNMEASURED)
		take_fork(windows, event);
	else if (event->kind == EVENT_WINDOW_END)
		take_end(windows, event);
}

/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_CONTROL_H
#define FORKTAIL_CONTROL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONTROL_LINE_BYTES 64

/* Who may end a run early: standard input and signals. */
struct control {
	int signals;
	char line[CONTROL_LINE_BYTES];
	size_t line_bytes;
};

/* Blocks the signals, and has epoll report both sources with this as their data. */
struct control control_open(int epoll, uint64_t data);

/* Whether the run is to stop. */
bool control_read(struct control *control);

/* Listens no more: a standard input at its end would wake epoll for ever. */
void control_close(struct control *control, int epoll);

#endif

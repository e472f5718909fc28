// SPDX-License-Identifier: Apache-2.0
#ifndef FORKTAIL_TAP_H
#define FORKTAIL_TAP_H

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Test points are numbered in the process that reports them; children tell by their exit status. */
static int tap_count;
static int tap_failures;

static inline void tap_print(const char *what, const char *format, va_list arguments)
{
	char text[256];

	vsnprintf(text, sizeof(text), format, arguments);
	/* One write a line, so that the kernel's own lines cannot come between. */
	dprintf(STDOUT_FILENO, "%s%s\n", what, text);
}

__attribute__((format(printf, 2, 3))) static inline bool tap_ok(bool passed, const char *format,
								...)
{
	char head[32];
	va_list arguments;

	tap_failures += !passed;
	snprintf(head, sizeof(head), "%sok %d - ", passed ? "" : "not ", ++tap_count);
	va_start(arguments, format);
	tap_print(head, format, arguments);
	va_end(arguments);
	return passed;
}

__attribute__((format(printf, 1, 2))) static inline void tap_note(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	tap_print("# ", format, arguments);
	va_end(arguments);
}

__attribute__((format(printf, 1, 2), noreturn)) static inline void tap_bail_out(const char *format,
										...)
{
	va_list arguments;

	va_start(arguments, format);
	tap_print("Bail out! ", format, arguments);
	va_end(arguments);
	exit(255);
}

static inline void tap_skip(const char *name, const char *reason)
{
	dprintf(STDOUT_FILENO, "ok %d - %s # SKIP %s\n", ++tap_count, name, reason);
}

/* What main() returns. */
static inline int tap_done(void)
{
	dprintf(STDOUT_FILENO, "1..%d\n", tap_count);
	return tap_failures != 0;
}

#endif

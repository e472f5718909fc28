// SPDX-License-Identifier: Apache-2.0
#include "fail.h"

#include <stdarg.h>
#include <stdio.h>

enum exit_code fail(enum exit_code code, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	fputs("forktail-probe: ", stderr);
	vfprintf(stderr, format, arguments);
	fputc('\n', stderr);
	va_end(arguments);
	return code;
}

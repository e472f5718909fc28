/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_FAIL_H
#define FORKTAIL_FAIL_H

enum exit_code {
	EXIT_OK = 0,
	EXIT_CHECK_FAILED = 1,
	EXIT_BAD_INPUT = 2,
	EXIT_NO_ENVIRONMENT = 3,
};

/* One sentence on standard error; returns its first argument, to be returned in turn. */
enum exit_code fail(enum exit_code code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif

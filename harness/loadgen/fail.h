/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_FAIL_H
#define FORKTAIL_FAIL_H

enum {
	EXIT_CHECK_FAILED = 1, /* the result failed a check of its own */
	EXIT_BAD_INPUT = 2,
	EXIT_ENVIRONMENT = 3, /* the host or the server lacks something */
};

/* Says one sentence on standard error. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Says it and ends the process. */
_Noreturn void fail(int exit_code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif

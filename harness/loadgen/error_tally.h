/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_ERROR_TALLY_H
#define FORKTAIL_ERROR_TALLY_H

#include <stddef.h>
#include <stdint.h>

#define ERROR_CODES 16
#define ERROR_CODE_BYTES 32

/* Error replies by their first word (ERR, LOADING, OOM ...), in a table that never grows. */
struct error_tally {
	size_t codes;
	struct error_count {
		char code[ERROR_CODE_BYTES];
		uint64_t count;
	} entry[ERROR_CODES];
};

void error_tally_add(struct error_tally *tally, const char *line);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The list of functions that copy page tables outside fork: data, since each kernel has its own. */
#ifndef FORKTAIL_SYMBOLS_H
#define FORKTAIL_SYMBOLS_H

#include <stddef.h>

#define MAX_SYMBOLS 32
#define SYMBOL_PLACES 5

struct symbol {
	char name[64];
	char label[64];
	unsigned int address_place;
};

struct symbols {
	struct symbol list[MAX_SYMBOLS];
	size_t count;
};

/* Returns 0, or the number of the line that is malformed. */
int symbols_parse(struct symbols *symbols, const char *text);

/* NULL reads the built-in list. Returns 0, a malformed line's number, or a negative errno. */
int symbols_read(struct symbols *symbols, const char *path);

#endif

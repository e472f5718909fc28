/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_REPLY_H
#define FORKTAIL_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define REPLY_ERROR_BYTES 160

enum reply_kind {
	REPLY_INCOMPLETE,
	REPLY_OK,
	REPLY_NIL,
	REPLY_ERROR,
	REPLY_INVALID, /* not RESP: the connection cannot be used any more */
};

enum reply_state { REPLY_TYPE, REPLY_LINE, REPLY_LINE_END, REPLY_BULK };

/* An incremental parser of RESP2, and of RESP3's null. All zero is the state before a reply. */
struct reply_parser {
	enum reply_state state;
	char type;            /* of the element being read */
	enum reply_kind kind; /* of the reply, known from its first element */
	uint64_t elements;    /* still to be read */
	bool outermost;       /* the element is the reply itself */
	uint64_t line_bytes;
	bool negative;
	bool digits;
	uint64_t number;
	uint64_t bulk_bytes;           /* still to be read, with the CR LF */
	char error[REPLY_ERROR_BYTES]; /* the last error reply's line, cut to fit */
	size_t error_bytes;
};

/*
 * Reads at most one reply and returns how many bytes it took. *kind stays REPLY_INCOMPLETE
 * while all were taken and the reply goes on. After REPLY_INVALID the parser is of no use.
 */
size_t reply_parse(struct reply_parser *parser, const char *data, size_t bytes,
		   enum reply_kind *kind);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what the parser finds in standard input: a line for each reply, and what is left over. */
#include "reply.h"

#include <stdio.h>

int main(void)
{
	static const char *const names[] = {"incomplete", "ok", "nil", "error", "invalid"};
	static char input[1 << 20];
	struct reply_parser parser = {0};
	size_t bytes = fread(input, 1, sizeof(input), stdin);

	for (size_t at = 0; at < bytes;) {
		enum reply_kind kind;

		at += reply_parse(&parser, input + at, bytes - at, &kind);
		printf("%s%s%s\n", names[kind], kind == REPLY_ERROR ? " " : "",
		       kind == REPLY_ERROR ? parser.error : "");
		if (kind == REPLY_INVALID)
			break;
	}
	return 0;
}

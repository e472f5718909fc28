/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A libFuzzer target: however a stream is cut into reads, the parser must find the same replies,
 * take every byte once, and stay inside its buffers.
 */
#include "reply.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define REPLIES 64

struct found {
	size_t replies;
	enum reply_kind kind[REPLIES];
	size_t bytes;
	char error[REPLY_ERROR_BYTES];
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

/* The cut is copied to a block of its own size, so that a read past its end is seen. */
static size_t parse_cut(struct reply_parser *parser, const uint8_t *data, size_t bytes,
			enum reply_kind *kind)
{
	char *cut = malloc(bytes);

	memcpy(cut, data, bytes);

	size_t taken = reply_parse(parser, cut, bytes, kind);

	free(cut);
	return taken;
}

static struct found parse(const uint8_t *data, size_t bytes, size_t largest_cut)
{
	struct reply_parser parser = {0};
	struct found found = {0};

	while (found.bytes < bytes && found.replies < REPLIES) {
		size_t left = bytes - found.bytes, cut = left < largest_cut ? left : largest_cut;
		enum reply_kind kind;
		size_t taken = parse_cut(&parser, data + found.bytes, cut, &kind);

		if (taken == 0 || taken > cut || (kind == REPLY_INCOMPLETE && taken != cut))
			abort();
		if (parser.error_bytes >= REPLY_ERROR_BYTES || parser.error[parser.error_bytes])
			abort();
		found.bytes += taken;
		if (kind == REPLY_INCOMPLETE)
			continue;
		found.kind[found.replies++] = kind;
		if (kind == REPLY_INVALID)
			break;
	}
	memcpy(found.error, parser.error, sizeof(found.error));
	return found;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct found whole = parse(data, bytes, SIZE_MAX);

	for (size_t cut = 1; cut <= 7; cut += 3) {
		struct found pieces = parse(data, bytes, cut);

		if (memcmp(&whole, &pieces, sizeof(whole)))
			abort();
	}
	return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "reply.h"

#include <string.h>

/* Beyond these a reply to SET or GET is no reply, and a parser must not follow it for ever. */
#define LINE_MAX_BYTES (64U << 10)
#define BULK_MAX_BYTES (512ULL << 20)
#define ELEMENTS_MAX (1U << 20)

static bool take_type(struct reply_parser *p, char c)
{
	if (!strchr("+-:$*_", c) || c == '\0')
		return false;
	p->outermost = p->elements == 0;
	if (p->outermost) {
		p->elements = 1;
		p->kind = c == '-' ? REPLY_ERROR : c == '_' ? REPLY_NIL : REPLY_OK;
		if (c == '-')
			p->error[p->error_bytes = 0] = '\0';
	}
	p->type = c;
	p->line_bytes = 0;
	p->number = 0;
	p->negative = p->digits = false;
	p->state = REPLY_LINE;
	return true;
}

static bool take_digit(struct reply_parser *p, char c)
{
	if (p->line_bytes == 1 && (c == '-' || (c == '+' && p->type == ':'))) {
		p->negative = c == '-';
		return true;
	}
	if (c < '0' || c > '9' || p->number > (uint64_t)INT64_MAX / 10)
		return false;
	p->number = p->number * 10 + (uint64_t)(c - '0');
	p->digits = true;
	return true;
}

static bool take_line_byte(struct reply_parser *p, char c)
{
	if (c == '\r') {
		p->state = REPLY_LINE_END;
		return true;
	}
	if (c == '\n' || ++p->line_bytes > LINE_MAX_BYTES)
		return false;
	switch (p->type) {
	case '+':
		return true;
	case '-':
		if (p->outermost && p->error_bytes < REPLY_ERROR_BYTES - 1) {
			p->error[p->error_bytes++] = c;
			p->error[p->error_bytes] = '\0';
		}
		return true;
	case '_':
		return false;
	default:
		return take_digit(p, c);
	}
}

static void end_element(struct reply_parser *p)
{
	p->elements--;
	p->state = REPLY_TYPE;
}

/* A length of -1 is the nil of RESP2. */
static bool end_line(struct reply_parser *p)
{
	bool is_length = p->type == '$' || p->type == '*';
	bool is_number = is_length || p->type == ':';

	if (is_number && !p->digits)
		return false;
	if (is_length && p->negative) {
		if (p->number != 1)
			return false;
		if (p->outermost)
			p->kind = REPLY_NIL;
	} else if (p->type == '$') {
		p->bulk_bytes = p->number + 2;
		p->state = REPLY_BULK;
		return p->number <= BULK_MAX_BYTES;
	} else if (p->type == '*') {
		p->elements += p->number;
		if (p->number > ELEMENTS_MAX || p->elements > ELEMENTS_MAX)
			return false;
	}
	end_element(p);
	return true;
}

/* Takes the payload in one step; only its CR LF is looked at. */
static size_t take_bulk(struct reply_parser *p, const char *data, size_t bytes, bool *valid)
{
	size_t taken = 0;

	if (p->bulk_bytes > 2) {
		taken = bytes < p->bulk_bytes - 2 ? bytes : (size_t)(p->bulk_bytes - 2);
		p->bulk_bytes -= taken;
	}
	while (taken < bytes && p->bulk_bytes > 0) {
		if (data[taken++] != (p->bulk_bytes == 2 ? '\r' : '\n')) {
			*valid = false;
			return taken;
		}
		p->bulk_bytes--;
	}
	if (p->bulk_bytes == 0)
		end_element(p);
	return taken;
}

size_t reply_parse(struct reply_parser *p, const char *data, size_t bytes, enum reply_kind *kind)
{
	size_t at = 0;
	bool valid = true;

	*kind = REPLY_INCOMPLETE;
	while (at < bytes) {
		switch (p->state) {
		case REPLY_TYPE:
			valid = take_type(p, data[at++]);
			break;
		case REPLY_LINE:
			valid = take_line_byte(p, data[at++]);
			break;
		case REPLY_LINE_END:
			valid = data[at++] == '\n' && end_line(p);
			break;
		case REPLY_BULK:
			at += take_bulk(p, data + at, bytes - at, &valid);
			break;
		}
		if (!valid) {
			*kind = REPLY_INVALID;
			return at;
		}
		if (p->state == REPLY_TYPE && p->elements == 0) {
			*kind = p->kind;
			return at;
		}
	}
	return at;
}

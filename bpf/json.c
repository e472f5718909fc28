// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <inttypes.h>

static void write_quoted(FILE *out, const char *text)
{
	fputc('"', out);
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			fprintf(out, "\\%c", c);
		else if (c < 0x20)
			fprintf(out, "\\u%04x", c);
		else
			fputc(c, out);
	}
	fputc('"', out);
}

static void begin_value(struct json *json, const char *key)
{
	if (json->comma)
		fputc(',', json->out);
	json->comma = true;
	if (key) {
		write_quoted(json->out, key);
		fputc(':', json->out);
	}
}

static void open_with(struct json *json, const char *key, char bracket)
{
	begin_value(json, key);
	fputc(bracket, json->out);
	json->comma = false;
}

static void close_with(struct json *json, char bracket)
{
	fputc(bracket, json->out);
	json->comma = true;
}

void json_open_object(struct json *json, const char *key)
{
	open_with(json, key, '{');
}

void json_close_object(struct json *json)
{
	close_with(json, '}');
}

void json_open_array(struct json *json, const char *key)
{
	open_with(json, key, '[');
}

void json_close_array(struct json *json)
{
	close_with(json, ']');
}

void json_string(struct json *json, const char *key, const char *value)
{
	begin_value(json, key);
	if (value)
		write_quoted(json->out, value);
	else
		fputs("null", json->out);
}

void json_integer(struct json *json, const char *key, int64_t value)
{
	begin_value(json, key);
	fprintf(json->out, "%" PRId64, value);
}

void json_unsigned(struct json *json, const char *key, uint64_t value)
{
	begin_value(json, key);
	fprintf(json->out, "%" PRIu64, value);
}

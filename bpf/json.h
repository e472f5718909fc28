/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one JSON value to a stream; a key of NULL is for array elements and the outermost value.
 */
#ifndef FORKTAIL_JSON_H
#define FORKTAIL_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
	FILE *out;
	bool comma;
};

void json_open_object(struct json *json, const char *key);
void json_close_object(struct json *json);
void json_open_array(struct json *json, const char *key);
void json_close_array(struct json *json);
void json_string(struct json *json, const char *key, const char *value);
void json_integer(struct json *json, const char *key, int64_t value);
void json_unsigned(struct json *json, const char *key, uint64_t value);

#endif

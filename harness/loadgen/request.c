/* SPDX-License-Identifier: Apache-2.0 */
#include "request.h"

#include <stdio.h>
#include <string.h>

static struct request_head head_of(const char *prefix, const char *suffix)
{
	struct request_head head = {.key_at = strlen(prefix)};

	head.bytes =
	    (size_t)snprintf(head.text, HEAD_BYTES, "%s%*s%s", prefix, KEY_BYTES, "", suffix);
	return head;
}

struct request_format request_format_of(struct value_pool values)
{
	struct request_format format = {.values = values};
	char value_length[32];

	snprintf(value_length, sizeof(value_length), "\r\n$%zu\r\n", values.value_bytes);
	format.heads[OPERATION_SET] = head_of("*3\r\n$3\r\nSET\r\n$8\r\n", value_length);
	format.heads[OPERATION_GET] = head_of("*2\r\n$3\r\nGET\r\n$8\r\n", "\r\n");
	return format;
}

static void write_key(char *to, uint32_t key)
{
	for (int i = KEY_BYTES; i-- > 0; key >>= 4)
		to[i] = "0123456789abcdef"[key & 15];
}

static void add_part(struct request_batch *batch, const char *bytes, size_t count)
{
	batch->part[batch->parts++] = (struct iovec){(void *)bytes, count};
	batch->bytes[batch->requests] += count;
}

void request_batch_add(struct request_batch *batch, const struct request_format *format,
		       const struct query *query)
{
	const struct request_head *head = &format->heads[query->operation];
	const struct value_pool *values = &format->values;
	char *text = batch->heads[batch->requests];

	memcpy(text, head->text, HEAD_BYTES);
	write_key(text + head->key_at, query->key);

	batch->bytes[batch->requests] = 0;
	add_part(batch, text, head->bytes);
	if (query->operation == OPERATION_SET) {
		if (values->random_bytes)
			add_part(batch, value_pool_slice(values, query->value),
				 values->random_bytes);
		add_part(batch, values->tail, values->tail_bytes);
	}
	batch->requests++;
}

/* SPDX-License-Identifier: Apache-2.0 */
#include "request.h"

#include <stdio.h>
#include <string.h>

static struct request_head head_of(const char *command, const struct key_names *names,
				   const char *suffix)
{
	struct request_head head;
	size_t key_bytes = strlen(names->prefix) + names->digits;

	head.key_at = (size_t)snprintf(head.text, HEAD_BYTES, "%s$%zu\r\n%s", command, key_bytes,
				       names->prefix);
	head.bytes = head.key_at;
	head.bytes += (size_t)snprintf(head.text + head.key_at, HEAD_BYTES - head.key_at, "%*s%s",
				       (int)names->digits, "", suffix);
	return head;
}

struct request_format request_format_of(struct value_pool values, enum key_naming naming)
{
	struct request_format format = {.names = &key_names[naming], .values = values};
	char value_length[32];

	snprintf(value_length, sizeof(value_length), "\r\n$%zu\r\n", values.value_bytes);
	format.heads[OPERATION_SET] = head_of("*3\r\n$3\r\nSET\r\n", format.names, value_length);
	format.heads[OPERATION_GET] = head_of("*2\r\n$3\r\nGET\r\n", format.names, "\r\n");
	return format;
}

static void write_key(char *to, const struct key_names *names, uint64_t key)
{
	key += names->first;
	/* Apart, because a division for each digit costs more than the rest of the request. */
	if (names->base == 16)
		for (unsigned int i = names->digits; i-- > 0; key >>= 4)
			to[i] = "0123456789abcdef"[key & 15];
	else
		for (unsigned int i = names->digits; i-- > 0; key /= 10)
			to[i] = (char)('0' + key % 10);
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
	write_key(text + head->key_at, format->names, query->key);

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

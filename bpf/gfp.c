// SPDX-License-Identifier: Apache-2.0
#include "gfp.h"

#include <bpf/btf.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tracefs.h"

enum {
	GFP_ZERO,
	GFP_ACCOUNT,
	GFP_MOVABLE,
	GFP_FLAGS,
};

static const char *const enum_names[GFP_FLAGS] = {"___GFP_ZERO_BIT", "___GFP_ACCOUNT_BIT",
						  "___GFP_MOVABLE_BIT"};
static const char *const printed_names[GFP_FLAGS] = {"\"__GFP_ZERO\"", "\"__GFP_ACCOUNT\"",
						     "\"__GFP_MOVABLE\""};
/* Unchanged on x86 from 4.19 to 6.18. */
static const uint64_t usual[GFP_FLAGS] = {1U << 8, 1U << 22, 1U << 3};

/* Since 6.10 the bits are an anonymous enum, which CO-RE cannot name. */
static bool from_enum(const struct btf *kernel, uint64_t flags[GFP_FLAGS])
{
	__u32 types = btf__type_cnt(kernel);
	int found = 0;

	for (__u32 id = 1; id < types && found < GFP_FLAGS; id++) {
		const struct btf_type *type = btf__type_by_id(kernel, id);
		const struct btf_enum *member;

		if (!btf_is_enum(type) || type->name_off)
			continue;
		member = btf_enum(type);
		for (int i = 0; i < btf_vlen(type); i++) {
			const char *name = btf__name_by_offset(kernel, member[i].name_off);

			for (int flag = 0; flag < GFP_FLAGS; flag++) {
				if (strcmp(name, enum_names[flag]) != 0)
					continue;
				flags[flag] = 1ULL << (member[i].val & 63);
				found++;
			}
		}
	}
	return found == GFP_FLAGS;
}

/* The value stands before its name, as "(( gfp_t)0x100u)" or as "((((1UL))) << (8))". */
static uint64_t printed_value(const char *format, const char *name)
{
	const char *end = strstr(format, name), *at;

	if (!end)
		return 0;
	for (at = end; at > format && *at != '{'; at--) {
		if (strncmp(at, "0x", 2) == 0)
			return strtoull(at, NULL, 16);
		if (strncmp(at, "<< (", 4) == 0)
			return 1ULL << (strtoul(at + 4, NULL, 10) & 63);
	}
	return 0;
}

static bool from_format(uint64_t flags[GFP_FLAGS])
{
	static char format[65536];
	char path[256];
	size_t length;
	FILE *file;

	snprintf(path, sizeof(path), "%s/events/kmem/mm_page_alloc/format", tracefs_path());
	file = fopen(path, "re");
	if (!file)
		return false;
	length = fread(format, 1, sizeof(format) - 1, file);
	fclose(file);
	format[length] = '\0';
	for (int flag = 0; flag < GFP_FLAGS; flag++) {
		flags[flag] = printed_value(format, printed_names[flag]);
		if (!flags[flag])
			return false;
	}
	return true;
}

struct page_table_gfp page_table_gfp_resolve(const struct btf *kernel)
{
	struct page_table_gfp gfp = {.source = "BTF"};
	uint64_t flags[GFP_FLAGS];

	if (!from_enum(kernel, flags)) {
		gfp.source = "tracefs";
		if (!from_format(flags)) {
			gfp.source = "usual values";
			memcpy(flags, usual, sizeof(flags));
		}
	}
	gfp.set = flags[GFP_ZERO] | flags[GFP_ACCOUNT];
	gfp.clear = flags[GFP_MOVABLE];
	return gfp;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The allocation flags that tell a page-table page from a data page: their bits differ per kernel.
 */
#ifndef FORKTAIL_GFP_H
#define FORKTAIL_GFP_H

#include <stdint.h>

struct btf;

struct page_table_gfp {
	const char *source;
	uint64_t set;
	uint64_t clear;
};

struct page_table_gfp page_table_gfp_resolve(const struct btf *kernel);

#endif

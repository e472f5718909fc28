// SPDX-License-Identifier: Apache-2.0
#ifndef FORKTAIL_PAGES_H
#define FORKTAIL_PAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "tap.h"

#define PAGE 4096UL
#define TABLE (512 * PAGE)

/*
 * Anonymous memory whose every page carries a stamp at both ends, and a model of what the stamps
 * are; 0 is a page of zeroes. The model is private memory too, so it is as it was at the fork on
 * either side.
 */
struct pages {
	char *base;
	size_t count;
	uint64_t *stamps;
	uint64_t next;
	uint64_t seed;
};

static inline void *pages_map(void *address, size_t bytes)
{
	void *base =
	    mmap(address, bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (address ? MAP_FIXED : 0), -1, 0);

	if (base == MAP_FAILED)
		tap_bail_out("mmap of %zu bytes: %s", bytes, strerror(errno));
	return base;
}

/* A random number below a limit, the same in each run. */
static inline size_t pages_random(struct pages *pages, size_t limit)
{
	pages->seed ^= pages->seed << 13;
	pages->seed ^= pages->seed >> 7;
	pages->seed ^= pages->seed << 17;
	return pages->seed % limit;
}

static inline void pages_write(struct pages *pages, size_t index)
{
	uint64_t *words = (uint64_t *)(pages->base + index * PAGE);

	words[0] = pages->next;
	words[PAGE / 8 - 1] = ~pages->next;
	pages->stamps[index] = pages->next++;
}

static inline void pages_write_all(struct pages *pages)
{
	for (size_t index = 0; index < pages->count; index++)
		pages_write(pages, index);
}

static inline void pages_write_random(struct pages *pages, size_t writes)
{
	for (size_t i = 0; i < writes; i++)
		pages_write(pages, pages_random(pages, pages->count));
}

static inline void pages_forget(struct pages *pages, size_t first, size_t count)
{
	memset(pages->stamps + first, 0, count * sizeof(*pages->stamps));
}

/* The index of the first page that is not as the model says, or `count`. */
static inline size_t pages_check(const struct pages *pages)
{
	for (size_t index = 0; index < pages->count; index++) {
		const volatile uint64_t *words =
		    (const volatile uint64_t *)(pages->base + index * PAGE);
		uint64_t stamp = pages->stamps[index];

		if (words[0] != stamp || words[PAGE / 8 - 1] != (stamp ? ~stamp : 0))
			return index;
	}
	return pages->count;
}

static inline bool pages_intact(const struct pages *pages)
{
	size_t index = pages_check(pages);
	const uint64_t *words = (const uint64_t *)(pages->base + index * PAGE);

	if (index == pages->count)
		return true;
	tap_note("page %zu of %zu at %p: %#lx and %#lx where %#lx is expected", index, pages->count,
		 (void *)words, words[0], words[PAGE / 8 - 1], pages->stamps[index]);
	return false;
}

static inline struct pages pages_make_advised(size_t tables, int advice)
{
	struct pages pages = {.count = tables * 512 + 40, .next = 1, .seed = 0x9e3779b97f4a7c15};
	char *area = pages_map(NULL, (tables + 3) * TABLE);
	char *aligned = (char *)(((uintptr_t)area + TABLE - 1) & ~(TABLE - 1));

	munmap(area, (tables + 3) * TABLE);
	pages.base = pages_map(aligned + TABLE - 20 * PAGE, pages.count * PAGE);
	madvise(pages.base, pages.count * PAGE, advice);
	pages.stamps = pages_map(NULL, pages.count * sizeof(*pages.stamps));
	pages_write_all(&pages);
	return pages;
}

/* `tables` whole page tables, and some pages on either side that share theirs with nothing. */
static inline struct pages pages_make(size_t tables)
{
	return pages_make_advised(tables, MADV_NOHUGEPAGE);
}

/* The same, of huge pages where the machine gives them. */
static inline struct pages pages_make_huge(size_t tables)
{
	return pages_make_advised(tables, MADV_NORMAL);
}

static inline void pages_unmake(struct pages *pages)
{
	munmap(pages->base, pages->count * PAGE);
	munmap(pages->stamps, pages->count * sizeof(*pages->stamps));
}

#endif

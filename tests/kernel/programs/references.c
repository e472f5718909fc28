// SPDX-License-Identifier: Apache-2.0
/* A page that one side has put into a pipe never shows what the other side writes to it later. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/uio.h>

#include "family.h"
#include "pages.h"

#define PAGE_OF_INTEREST 700

static void put_into_pipe(const struct pages *pages, int pipe_end)
{
	struct iovec from = {pages->base + PAGE_OF_INTEREST * PAGE, PAGE};

	if (vmsplice(pipe_end, &from, 1, 0) != (ssize_t)PAGE)
		_exit(1);
}

static bool holds_stamp(int pipe_end, uint64_t stamp)
{
	uint64_t words[PAGE / 8] = {0};

	return read(pipe_end, words, PAGE) == (ssize_t)PAGE && words[0] == stamp;
}

static void child_cannot_spy(bool unmap)
{
	struct pages pages = pages_make(3);
	uint64_t stamp = pages.stamps[PAGE_OF_INTEREST];
	int ends[2];

	if (pipe(ends))
		tap_bail_out("pipe: %s", strerror(errno));
	struct child child = family_fork();

	if (child.pid == 0) {
		put_into_pipe(&pages, ends[1]);
		if (unmap)
			munmap(pages.base, pages.count * PAGE);
		_exit(0);
	}
	bool well = family_join(&child);

	pages_write_all(&pages);
	tap_ok(well && holds_stamp(ends[0], stamp) && pages_intact(&pages),
	       "what the parent writes does not reach a pipe of a child that has %s",
	       unmap ? "unmapped" : "exited");
	close(ends[0]);
	close(ends[1]);
	pages_unmake(&pages);
}

static void parent_cannot_spy(void)
{
	struct pages pages = pages_make(3);
	uint64_t stamp = pages.stamps[PAGE_OF_INTEREST];
	int ends[2];
	int told[2];
	char byte = 0;

	if (pipe(ends) || pipe(told))
		tap_bail_out("pipe: %s", strerror(errno));
	put_into_pipe(&pages, ends[1]);
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		pages_write_all(&pages);
		bool good = pages_intact(&pages);

		_exit(!(write(told[1], &byte, 1) == 1 && good));
	}
	munmap(pages.base, pages.count * PAGE);
	family_go(&child);
	bool well = read(told[0], &byte, 1) == 1 && holds_stamp(ends[0], stamp);

	well = family_join(&child) && well;
	tap_ok(well, "what the child writes does not reach a pipe of the parent");
	close(ends[0]);
	close(ends[1]);
	close(told[0]);
	close(told[1]);
}

int main(void)
{
	child_cannot_spy(true);
	child_cannot_spy(false);
	parent_cannot_spy();
	return tap_done();
}

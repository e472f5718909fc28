// SPDX-License-Identifier: Apache-2.0
/*
 * Pages that are taken out of use while tables are uncopied: MADV_SOFT_OFFLINE moves what is on
 * them elsewhere, MADV_HWPOISON loses it, for parent and child alike. Below a table that on-demand
 * fork has shared, a page can be neither moved nor unmapped: both fail, and what the child has of
 * it stays. The parent, for which the page was looked up, has copied its table by then.
 */
#define _GNU_SOURCE
#include <setjmp.h>

#include "family.h"
#include "flight.h"
#include "knobs.h"
#include "pages.h"

#define TABLES 5
#define POISON 100
#define OFFLINE 101
#define LOST (2 * 512 + 99)

static sigjmp_buf back;
static bool refused;

static void jump_back(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

static bool is_lost(const struct pages *pages, size_t index)
{
	signal(SIGBUS, jump_back);
	if (sigsetjmp(back, 1) == 0) {
		(void)*(volatile char *)(pages->base + index * PAGE);
		tap_note("page %zu is still there", index);
		return false;
	}
	signal(SIGBUS, SIG_DFL);
	return true;
}

static bool intact_but_for(const struct pages *pages, size_t index)
{
	struct pages before = *pages;
	struct pages after = *pages;

	before.count = index;
	after.base += (index + 1) * PAGE;
	after.stamps += index + 1;
	after.count -= index + 1;
	return pages_intact(&before) && pages_intact(&after);
}

static bool take_out(bool poison, bool hold)
{
	struct pages pages = pages_make(TABLES);
	bool good;

	if (hold)
		flight_hold(FLIGHT_ALL);
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		good = poison && !refused ? intact_but_for(&pages, LOST) && is_lost(&pages, LOST)
					  : pages_intact(&pages);
		_exit(!good);
	}
	if (hold)
		flight_await_hold();
	bool failed = madvise(pages.base + LOST * PAGE, PAGE, poison ? POISON : OFFLINE) != 0;

	good = failed == refused && (!failed || errno == EBUSY);
	if (!good)
		tap_note("madvise: %s", failed ? strerror(errno) : "not refused");
	good = poison ? intact_but_for(&pages, LOST) && is_lost(&pages, LOST) && good
		      : pages_intact(&pages) && good;
	if (hold)
		flight_release();
	good = family_join(&child) && good;
	good = (poison ? intact_but_for(&pages, LOST) : pages_intact(&pages)) && good;
	pages_unmake(&pages);
	return good;
}

static void test(const char *mode, bool hold)
{
	const char *when = hold ? ", nothing copied" : "";

	knobs_set_rmap(mode);
	refused = *mode;
	if (refused) {
		tap_ok(take_out(false, hold), "%s: MADV_SOFT_OFFLINE fails and loses nothing",
		       mode);
		tap_ok(take_out(true, hold), "%s: MADV_HWPOISON fails, the child keeps all", mode);
		return;
	}
	tap_ok(take_out(false, hold), "MADV_SOFT_OFFLINE of the parent loses nothing%s", when);
	tap_ok(take_out(true, hold), "MADV_HWPOISON of the parent loses one page on either side%s",
	       when);
}

int main(void)
{
	char *page = pages_map(NULL, PAGE);

	*page = 1;
	if (madvise(page, PAGE, OFFLINE) && errno == EINVAL) {
		tap_skip("taking pages out of use", "this kernel does not (CONFIG_MEMORY_FAILURE)");
		return tap_done();
	}
	for (const char *const *mode = knobs_rmap_modes(); *mode; mode++)
		test(*mode, false);
	if (access(RMAP, F_OK) == 0)
		knobs_set_rmap("refuse");
	if (access(FLIGHT_DEBUG "stat", R_OK) == 0 && flight_threads())
		test("", true);
	return tap_done();
}

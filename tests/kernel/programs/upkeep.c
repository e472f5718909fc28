// SPDX-License-Identifier: Apache-2.0
/*
 * What the kernel does to memory by itself, or when somebody else asks: reclaim, migration,
 * compaction, aging, merging, huge pages. While a family shares memory, in each mode of odf.rmap.
 */
#define _GNU_SOURCE
#include <poll.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>

#include "counters.h"
#include "family.h"
#include "knobs.h"
#include "pages.h"

#define TABLES 4
#define DISK "/dev/vda"
#define GROUP "/sys/fs/cgroup/forktail-upkeep/"
#define THP "/sys/kernel/mm/transparent_hugepage/"
#define KSM "/sys/kernel/mm/ksm/"
#define LRU_GEN "/sys/kernel/debug/lru_gen"

/* The processes that an operation has to do with. */
struct family {
	struct pages *pages;
	pid_t quiet;
	pid_t busy;
};

static void reclaim(const struct family *family)
{
	(void)family;
	knobs_set(GROUP "memory.reclaim", "8M");
	knobs_set(GROUP "memory.reclaim", "8M");
}

static void swap_in(const struct family *family)
{
	knobs_set(GROUP "memory.reclaim", "8M");
	swapoff(DISK);
	swapon(DISK, 0);
	reclaim(family);
	swapoff(DISK);
	swapon(DISK, 0);
}

static void migrate(const struct family *family)
{
	pid_t pids[] = {0, family->quiet, family->busy};

	for (int i = 0; i < 6; i++) {
		unsigned long from = 1UL << i % 2;
		unsigned long to = 3 ^ from;

		syscall(SYS_migrate_pages, pids[i / 2], 8 * sizeof(from), &from, &to);
	}
}

static void move(const struct family *family)
{
	pid_t pids[] = {0, family->quiet, family->busy};
	void *addresses[64];
	int status[64];
	int nodes[64];

	for (int i = 0; i < 6; i++) {
		for (size_t j = 0; j < 64; j++) {
			addresses[j] = family->pages->base + (j * 29 % family->pages->count) * PAGE;
			nodes[j] = i % 2;
		}
		syscall(SYS_move_pages, pids[i / 2], 64UL, addresses, nodes, status, 4 /* all */);
	}
}

static void compact(const struct family *family)
{
	(void)family;
	for (int i = 0; i < 3; i++)
		knobs_set("/proc/sys/vm/compact_memory", "1");
}

static void age(const struct family *family)
{
	(void)family;
	knobs_set("/sys/kernel/mm/lru_gen/enabled", "7");
	knobs_set("/sys/kernel/mm/lru_gen/min_ttl_ms", "0");
	for (int i = 0; i < 5; i++) {
		char line[256];
		char command[64];
		int memcg = 0;
		int node = -1;
		long sequence = 0;
		FILE *file = fopen(LRU_GEN, "r");

		/* The youngest generation of each memcg and node is followed by a younger one. */
		while (file && fgets(line, sizeof(line), file)) {
			if (sscanf(line, "memcg %d", &memcg) == 1 ||
			    sscanf(line, " node %d", &node) == 1)
				continue;
			sscanf(line, " %ld", &sequence);
			snprintf(command, sizeof(command), "+ %d %d %ld 1 1", memcg, node,
				 sequence);
			knobs_set(LRU_GEN, command);
		}
		if (file)
			fclose(file);
		reclaim(family);
	}
	knobs_set("/sys/kernel/mm/lru_gen/enabled", "0");
}

static void merge(const struct family *family)
{
	struct pages *pages = family->pages;

	/* Pages of zeroes are alike. */
	for (size_t i = 600; i < 900; i++)
		memset(pages->base + i * PAGE, 0, PAGE);
	pages_forget(pages, 600, 300);
	knobs_set(KSM "pages_to_scan", "20000");
	knobs_set(KSM "sleep_millisecs", "0");
	madvise(pages->base, pages->count * PAGE, MADV_MERGEABLE);
	knobs_set(KSM "run", "1");
	for (int i = 0; i < 10; i++) {
		pages_write_random(pages, 20);
		usleep(20000);
	}
	pid_t pid = fork();

	if (pid == 0) {
		bool good = pages_intact(pages);

		pages_write_all(pages);
		_exit(!(pages_intact(pages) && good));
	}
	struct child child = {.pid = pid, .go = -1};

	if (!family_join(&child))
		tap_bail_out("a child saw other memory than it was to inherit");
	knobs_set(KSM "run", "2");
	madvise(pages->base, pages->count * PAGE, MADV_UNMERGEABLE);
	knobs_set(KSM "run", "0");
}

static void collapse(const struct family *family)
{
	(void)family;
	knobs_set(THP "khugepaged/pages_to_scan", "20000");
	knobs_set(THP "khugepaged/scan_sleep_millisecs", "10");
	knobs_set(THP "enabled", "always");
	for (int i = 0; i < 10; i++) {
		pages_write_random(family->pages, 5);
		usleep(20000);
	}
	knobs_set(THP "khugepaged/scan_sleep_millisecs", "10000");
	knobs_set(THP "enabled", "madvise");
}

static const struct operation {
	const char *name;
	const char *needs;
	void (*run)(const struct family *family);
} operations[] = {
    {"reclaim", GROUP "memory.reclaim", reclaim},
    {"reclaim and swapoff", GROUP "memory.reclaim", swap_in},
    {"migrate_pages of each", "/sys/devices/system/node/node1", migrate},
    {"move_pages of each", "/sys/devices/system/node/node1", move},
    {"compaction", "/proc/sys/vm/compact_memory", compact},
    {"aging of the multi-generational LRU", LRU_GEN, age},
    {"KSM", KSM "run", merge},
    {"khugepaged", THP "khugepaged", collapse},
};

/* Unmapping this many pages at once makes the kernel flush the whole TLB of a process. */
static void flush_own_tlb(void)
{
	char *area = pages_map(NULL, 64 * PAGE);

	for (size_t i = 0; i < 64; i++)
		area[i * PAGE] = 1;
	munmap(area, 64 * PAGE);
}

/* With odf.rmap=published what a child reads is right only after a flush of its own. */
static bool check(const struct pages *pages, bool trusting)
{
	bool good = !trusting || pages_intact(pages);

	flush_own_tlb();
	return pages_intact(pages) && good;
}

static void be_quiet(struct child *self, struct pages *pages, bool trusting)
{
	family_wait(self);
	bool good = check(pages, trusting);

	pages_write_random(pages, 100);
	_exit(!(check(pages, trusting) && good));
}

static void be_busy(struct child *self, struct pages *pages, bool trusting)
{
	struct pollfd told = {.fd = self->go, .events = POLLIN};
	bool good = true;

	pages->seed ^= 0x5555;
	while (poll(&told, 1, 1) == 0) {
		pages_write_random(pages, 3);
		good = (!trusting || pages_intact(pages)) && good;
	}
	_exit(!(check(pages, trusting) && good));
}

/* Some huge pages of the memory, if it has any, come to be mapped page by page. */
static void map_piecemeal(struct pages *pages)
{
	mprotect(pages->base + 700 * PAGE, PAGE, PROT_READ);
	mprotect(pages->base + 700 * PAGE, PAGE, PROT_READ | PROT_WRITE);
	mprotect(pages->base + 1300 * PAGE, 300 * PAGE, PROT_READ);
	mprotect(pages->base + 1300 * PAGE, 300 * PAGE, PROT_READ | PROT_WRITE);
}

static bool holds(const struct operation *operation, bool trusting, bool huge)
{
	bool good;

	if (huge)
		knobs_set(THP "enabled", "always");
	struct pages pages = huge ? pages_make_huge(TABLES) : pages_make(TABLES);

	map_piecemeal(&pages);
	/* Part of it is elsewhere at the time of the fork. */
	madvise(pages.base + 1000 * PAGE, 200 * PAGE, MADV_PAGEOUT);
	struct child quiet = family_fork();

	if (quiet.pid == 0)
		be_quiet(&quiet, &pages, trusting);
	struct child busy = family_fork();

	if (busy.pid == 0)
		be_busy(&busy, &pages, trusting);
	struct family family = {&pages, quiet.pid, busy.pid};

	operation->run(&family);
	good = check(&pages, trusting);
	pages_write_random(&pages, 40);
	operation->run(&family);
	good = check(&pages, trusting) && good;
	good = family_join(&quiet) && good;
	good = check(&pages, trusting) && good;
	good = family_join(&busy) && good;
	operation->run(&family);
	good = pages_intact(&pages) && good;
	pages_write_all(&pages);
	good = pages_intact(&pages) && good;
	pages_unmake(&pages);
	knobs_set(THP "enabled", "madvise");
	return good;
}

static void test(const char *mode)
{
	bool trusting = strcmp(mode, "published") != 0;
	const char *separator = *mode ? ": " : "";

	knobs_set_rmap(mode);
	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
		const struct operation *operation = &operations[i];

		if (access(operation->needs, F_OK)) {
			tap_skip(operation->name, "this kernel has none");
			continue;
		}
		tap_ok(holds(operation, trusting, false), "%s%s%s", mode, separator,
		       operation->name);
		tap_ok(holds(operation, trusting, true), "%s%s%s, with huge pages", mode, separator,
		       operation->name);
	}
}

int main(void)
{
	const char *const *mode = knobs_rmap_modes();
	long rss;

	knobs_set("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
	mkdir(GROUP, 0755);
	knobs_set(GROUP "cgroup.procs", "0");
	rss = counters_read("/proc/self/status", "RssAnon");
	for (; *mode; mode++)
		test(*mode);
	if (access(RMAP, F_OK) == 0)
		knobs_set_rmap("refuse");
	rss = counters_read("/proc/self/status", "RssAnon") - rss;
	tap_ok(rss <= 300, "nothing is counted that is not there: %ld kB", rss);
	tap_ok(counters_read("/proc/self/status", "VmSwap") <= 400, "nor swapped out");
	return tap_done();
}

// SPDX-License-Identifier: Apache-2.0
/*
 * Whatever one side does to its memory, the other keeps what was there at the fork: every operation
 * that changes page tables, done by the parent while the child compares, and the other way round.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "family.h"
#include "pages.h"

#define TABLES 5
#define DISK "/dev/vda"

static void write_here_and_there(struct pages *pages)
{
	pages_write_random(pages, 40);
}

static void write_everything(struct pages *pages)
{
	pages_write_all(pages);
}

static void protect(struct pages *pages)
{
	size_t bytes = pages->count * PAGE;

	mprotect(pages->base, bytes, PROT_READ);
	mprotect(pages->base + 700 * PAGE, 900 * PAGE, PROT_NONE);
	mprotect(pages->base, bytes, PROT_READ | PROT_WRITE);
	mprotect(pages->base + 800 * PAGE, PAGE, PROT_READ);
	pages_write(pages, 801);
	mprotect(pages->base + 800 * PAGE, PAGE, PROT_READ | PROT_WRITE);
	pages_write(pages, 800);
}

static void replace(struct pages *pages, size_t first, size_t count)
{
	munmap(pages->base + first * PAGE, count * PAGE);
	pages_map(pages->base + first * PAGE, count * PAGE);
	madvise(pages->base + first * PAGE, count * PAGE, MADV_NOHUGEPAGE);
	pages_forget(pages, first, count);
}

static void unmap_pages(struct pages *pages)
{
	replace(pages, 700, 100);
	replace(pages, 1000, 600);
}

static void unmap_tables(struct pages *pages)
{
	replace(pages, 20 + 512, 1024);
}

static void unmap_everything(struct pages *pages)
{
	replace(pages, 0, pages->count);
}

static void move(struct pages *pages, size_t first, size_t count, size_t offset)
{
	char *area = pages_map(NULL, (count + 1024) * PAGE);
	char *to = (char *)(((uintptr_t)area + TABLE - 1) & ~(TABLE - 1)) + offset * PAGE;
	char *from = pages->base + first * PAGE;

	if (mremap(from, count * PAGE, count * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) ==
	    MAP_FAILED)
		tap_bail_out("mremap: %s", strerror(errno));
	*(volatile char *)to = *(volatile char *)to;
	if (mremap(to, count * PAGE, count * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, from) ==
	    MAP_FAILED)
		tap_bail_out("mremap back: %s", strerror(errno));
	munmap(area, (count + 1024) * PAGE);
}

static void move_tables(struct pages *pages)
{
	move(pages, 20 + 512, 1024, 0);
}

static void move_pages_apart(struct pages *pages)
{
	move(pages, 600, 700, 3);
}

static void forget_pages(struct pages *pages)
{
	madvise(pages->base + 700 * PAGE, 100 * PAGE, MADV_DONTNEED);
	pages_forget(pages, 700, 100);
}

static void forget_everything(struct pages *pages)
{
	madvise(pages->base, pages->count * PAGE, MADV_DONTNEED);
	pages_forget(pages, 0, pages->count);
}

static void free_lazily(struct pages *pages)
{
	madvise(pages->base, pages->count * PAGE, MADV_FREE);
	pages_write_all(pages);
}

static void page_out(struct pages *pages)
{
	madvise(pages->base, pages->count * PAGE, MADV_COLD);
	madvise(pages->base, pages->count * PAGE, MADV_PAGEOUT);
	pages_write_random(pages, 40);
}

static void swap_everything_in(struct pages *pages)
{
	(void)pages;
	swapoff(DISK);
	swapon(DISK, 0);
}

static void lock(struct pages *pages)
{
	mlock(pages->base + 600 * PAGE, 600 * PAGE);
	pages_write_random(pages, 40);
	munlock(pages->base + 600 * PAGE, 600 * PAGE);
}

static void make_huge(struct pages *pages)
{
	madvise(pages->base, pages->count * PAGE, MADV_HUGEPAGE);
	madvise(pages->base, pages->count * PAGE, 25 /* MADV_COLLAPSE */);
	pages_write_random(pages, 40);
}

static void merge(struct pages *pages)
{
	madvise(pages->base, pages->count * PAGE, MADV_MERGEABLE);
	pages_write_random(pages, 40);
	madvise(pages->base, pages->count * PAGE, MADV_UNMERGEABLE);
}

static void watch(struct pages *pages)
{
	struct uffdio_api api = {.api = UFFD_API};
	struct uffdio_register area = {
	    .range = {(uintptr_t)pages->base + 600 * PAGE, 900 * PAGE},
	    .mode = UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP,
	};
	struct uffdio_writeprotect protection = {.range = area.range,
						 .mode = UFFDIO_WRITEPROTECT_MODE_WP};
	int watcher = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);

	if (watcher < 0 || ioctl(watcher, UFFDIO_API, &api) ||
	    ioctl(watcher, UFFDIO_REGISTER, &area))
		tap_bail_out("userfaultfd: %s", strerror(errno));
	ioctl(watcher, UFFDIO_WRITEPROTECT, &protection);
	protection.mode = 0;
	ioctl(watcher, UFFDIO_WRITEPROTECT, &protection);
	pages_write(pages, 700);
	ioctl(watcher, UFFDIO_UNREGISTER, &area.range);
	close(watcher);
}

static void track(struct pages *pages)
{
	int file = open("/proc/self/clear_refs", O_WRONLY);

	if (write(file, "4", 1) != 1 || write(file, "1", 1) != 1)
		tap_bail_out("clear_refs: %s", strerror(errno));
	close(file);
	pages_write_random(pages, 40);
}

static void change_node(struct pages *pages)
{
	unsigned long nodes = 2;
	void *addresses[64];
	int to[64];
	int status[64];

	syscall(SYS_mbind, pages->base + 600 * PAGE, 600 * PAGE, MPOL_BIND, &nodes,
		8 * sizeof(nodes), MPOL_MF_MOVE_ALL);
	for (size_t i = 0; i < 64; i++) {
		addresses[i] = pages->base + (1400 + i) * PAGE;
		to[i] = 1;
	}
	syscall(SYS_move_pages, 0, 64UL, addresses, to, status, MPOL_MF_MOVE_ALL);
	pages_write_random(pages, 40);
}

static void leave_node(struct pages *pages)
{
	unsigned long from = 3;
	unsigned long to = 2;

	syscall(SYS_migrate_pages, 0, 8 * sizeof(from), &from, &to);
	to = 1;
	syscall(SYS_migrate_pages, 0, 8 * sizeof(from), &from, &to);
	pages_write_random(pages, 40);
}

static void write_remotely(struct pages *pages)
{
	uint64_t words[PAGE / 8] = {0};

	for (size_t index = 550; index < 1600; index += 350) {
		struct iovec from = {words, PAGE};
		struct iovec to = {pages->base + index * PAGE, PAGE};

		words[0] = pages->next;
		words[PAGE / 8 - 1] = ~pages->next;
		pages->stamps[index] = pages->next++;
		if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) != (ssize_t)PAGE)
			tap_bail_out("process_vm_writev: %s", strerror(errno));
	}
}

static void write_by_file(struct pages *pages)
{
	int memory = open("/proc/self/mem", O_RDWR);
	uint64_t stamp = pages->next++;
	uint64_t last = ~stamp;
	off_t at = (uintptr_t)(pages->base + 1100 * PAGE);

	if (pwrite(memory, &stamp, 8, at) != 8 || pwrite(memory, &last, 8, at + PAGE - 8) != 8)
		tap_bail_out("/proc/self/mem: %s", strerror(errno));
	pages->stamps[1100] = stamp;
	close(memory);
}

static void read_directly(struct pages *pages)
{
	static char expected[PAGE] __attribute__((aligned(4096)));
	int disk = open(DISK, O_RDONLY | O_DIRECT);
	char *page = pages->base + 1200 * PAGE;

	if (pread(disk, page, PAGE, 0) != (ssize_t)PAGE ||
	    pread(disk, expected, PAGE, 0) != (ssize_t)PAGE || memcmp(page, expected, PAGE))
		tap_bail_out("%s is not read as it is: %s", DISK, strerror(errno));
	close(disk);
	pages_write(pages, 1200);
}

static void splice_pages(struct pages *pages)
{
	struct iovec from = {pages->base + 900 * PAGE, 4 * PAGE};
	char back[PAGE];
	int ends[2];

	if (pipe(ends) || vmsplice(ends[1], &from, 1, 0) != (ssize_t)(4 * PAGE))
		tap_bail_out("vmsplice: %s", strerror(errno));
	pages_write(pages, 901);
	while (read(ends[0], back, sizeof(back)) == (ssize_t)sizeof(back) &&
	       fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0)
		;
	close(ends[0]);
	close(ends[1]);
}

static void split(struct pages *pages)
{
	madvise(pages->base + 650 * PAGE, 10 * PAGE, MADV_DONTFORK);
	pages_write_random(pages, 40);
	madvise(pages->base + 650 * PAGE, 10 * PAGE, MADV_DOFORK);
	madvise(pages->base + 20 * PAGE + TABLE, TABLE, MADV_DONTFORK);
	madvise(pages->base + 20 * PAGE + TABLE, TABLE, MADV_DOFORK);
}

static void fork_again(struct pages *pages)
{
	struct child child = family_fork();

	if (child.pid == 0) {
		pages_write_random(pages, 40);
		_exit(pages_intact(pages) ? 0 : 1);
	}
	pages_write_random(pages, 40);
	if (!family_join(&child))
		tap_bail_out("the second child saw other memory than it was to inherit");
}

static const struct operation {
	const char *name;
	void (*run)(struct pages *pages);
} operations[] = {
    {"write here and there", write_here_and_there},
    {"write everything", write_everything},
    {"mprotect", protect},
    {"munmap of pages", unmap_pages},
    {"munmap of tables", unmap_tables},
    {"munmap of everything", unmap_everything},
    {"mremap of tables", move_tables},
    {"mremap of pages", move_pages_apart},
    {"MADV_DONTNEED of pages", forget_pages},
    {"MADV_DONTNEED of everything", forget_everything},
    {"MADV_FREE", free_lazily},
    {"MADV_PAGEOUT", page_out},
    {"swapoff", swap_everything_in},
    {"mlock", lock},
    {"MADV_HUGEPAGE and MADV_COLLAPSE", make_huge},
    {"MADV_MERGEABLE", merge},
    {"userfaultfd", watch},
    {"clear_refs", track},
    {"mbind and move_pages", change_node},
    {"migrate_pages", leave_node},
    {"process_vm_writev", write_remotely},
    {"/proc/self/mem", write_by_file},
    {"O_DIRECT", read_directly},
    {"vmsplice", splice_pages},
    {"a split vma", split},
    {"another fork", fork_again},
};

/* An operation of one side, seen by both; with part of the memory swapped out at the fork if so
 * wished. */
static bool holds(const struct operation *operation, bool in_parent, bool swapped)
{
	struct pages pages = pages_make(TABLES);
	bool good;

	if (swapped)
		madvise(pages.base + 600 * PAGE, 900 * PAGE, MADV_PAGEOUT);
	struct child child = family_fork();

	if (child.pid == 0) {
		if (in_parent)
			family_wait(&child);
		else
			operation->run(&pages);
		good = pages_intact(&pages);
		pages_write_random(&pages, 40);
		good = pages_intact(&pages) && good;
		pages_unmake(&pages);
		_exit(good ? 0 : 1);
	}
	if (in_parent) {
		operation->run(&pages);
		good = pages_intact(&pages);
		good = family_join(&child) && good;
	} else {
		good = pages_intact(&pages);
		good = family_join(&child) && good;
	}
	good = pages_intact(&pages) && good;
	pages_write_all(&pages);
	good = pages_intact(&pages) && good;
	pages_unmake(&pages);
	return good;
}

int main(void)
{
	for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++) {
		const struct operation *operation = &operations[i];

		tap_ok(holds(operation, true, false), "%s, by the parent", operation->name);
		tap_ok(holds(operation, false, false), "%s, by the child", operation->name);
		tap_ok(holds(operation, true, true), "%s, by the parent, partly swapped out",
		       operation->name);
		tap_ok(holds(operation, false, true), "%s, by the child, partly swapped out",
		       operation->name);
	}
	return tap_done();
}

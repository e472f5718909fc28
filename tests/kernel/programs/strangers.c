// SPDX-License-Identifier: Apache-2.0
/* What a stranger writes into one process of a family, that one has and no other. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#include "family.h"
#include "pages.h"

#define TABLES 3
#define PAGE_OF_INTEREST 700

static uint64_t *words_of(const struct pages *pages)
{
	return (uint64_t *)(pages->base + PAGE_OF_INTEREST * PAGE);
}

static void poke(pid_t pid, const struct pages *pages, uint64_t stamp)
{
	uint64_t *words = words_of(pages);

	if (ptrace(PTRACE_ATTACH, pid, NULL, NULL))
		_exit(2);
	waitpid(pid, NULL, __WALL);
	if (ptrace(PTRACE_POKEDATA, pid, words, stamp) ||
	    ptrace(PTRACE_POKEDATA, pid, words + PAGE / 8 - 1, ~stamp))
		_exit(3);
	ptrace(PTRACE_DETACH, pid, NULL, NULL);
}

static void write_file(pid_t pid, const struct pages *pages, uint64_t stamp)
{
	uint64_t *words = words_of(pages);
	uint64_t last = ~stamp;
	char name[32];

	snprintf(name, sizeof(name), "/proc/%d/mem", pid);
	int file = open(name, O_RDWR);

	if (pwrite(file, &stamp, 8, (uintptr_t)words) != 8 ||
	    pwrite(file, &last, 8, (uintptr_t)(words + PAGE / 8 - 1)) != 8)
		_exit(2);
	close(file);
}

static void write_vector(pid_t pid, const struct pages *pages, uint64_t stamp)
{
	uint64_t words[PAGE / 8] = {stamp};
	struct iovec from = {words, PAGE};
	struct iovec to = {words_of(pages), PAGE};

	words[PAGE / 8 - 1] = ~stamp;
	if (process_vm_writev(pid, &from, 1, &to, 1, 0) != (ssize_t)PAGE)
		_exit(2);
}

/* What a stranger reads is what the process has, also if it has just been written to. */
static bool reads(pid_t pid, const struct pages *pages, uint64_t stamp)
{
	uint64_t words[PAGE / 8] = {0};
	struct iovec to = {words, PAGE};
	struct iovec from = {words_of(pages), PAGE};

	return process_vm_readv(pid, &to, 1, &from, 1, 0) == (ssize_t)PAGE && words[0] == stamp;
}

static const struct tool {
	const char *name;
	void (*write)(pid_t pid, const struct pages *pages, uint64_t stamp);
} tools[] = {
    {"ptrace", poke},
    {"/proc/PID/mem", write_file},
    {"process_vm_writev", write_vector},
};

/* The stranger is a process of its own, for a tracer can not be its own tracee. */
static bool intrude(const struct tool *tool, pid_t victim, pid_t other, const struct pages *pages,
		    uint64_t stamp)
{
	int status = -1;
	pid_t pid = fork();

	if (pid == 0) {
		tool->write(victim, pages, stamp);
		_exit(!(reads(victim, pages, stamp) &&
			reads(other, pages, pages->stamps[PAGE_OF_INTEREST])));
	}
	/* Who is traced meanwhile is interrupted. */
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return status == 0;
}

static bool into_child(const struct tool *tool)
{
	struct pages pages = pages_make(TABLES);
	uint64_t stamp = 1UL << 40;
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		pages.stamps[PAGE_OF_INTEREST] = stamp;
		bool good = pages_intact(&pages);

		pages_write_all(&pages);
		_exit(!(pages_intact(&pages) && good));
	}
	bool good = intrude(tool, child.pid, getpid(), &pages, stamp);

	good = pages_intact(&pages) && good;
	good = family_join(&child) && good;
	good = pages_intact(&pages) && good;
	pages_unmake(&pages);
	return good;
}

static bool into_parent(const struct tool *tool)
{
	struct pages pages = pages_make(TABLES);
	uint64_t stamp = 1UL << 41;
	struct child child = family_fork();

	if (child.pid == 0) {
		family_wait(&child);
		_exit(!pages_intact(&pages));
	}
	bool good = intrude(tool, getpid(), child.pid, &pages, stamp);

	pages.stamps[PAGE_OF_INTEREST] = stamp;
	good = pages_intact(&pages) && good;
	good = family_join(&child) && good;
	pages_write_all(&pages);
	good = pages_intact(&pages) && good;
	pages_unmake(&pages);
	return good;
}

int main(void)
{
	for (size_t i = 0; i < sizeof(tools) / sizeof(*tools); i++) {
		tap_ok(into_child(&tools[i]), "%s, into the child", tools[i].name);
		tap_ok(into_parent(&tools[i]), "%s, into the parent", tools[i].name);
	}
	return tap_done();
}

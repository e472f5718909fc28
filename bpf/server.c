// SPDX-License-Identifier: Apache-2.0
#include "server.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* PROC_PID_INIT_INO of include/linux/proc_ns.h. */
#define ROOT_PID_NAMESPACE_INODE 0xEFFFFFFCU

int server_namespace_ids(pid_t pid, pid_t ids[MAX_PID_NAMESPACES])
{
	char path[64], line[512];
	int count = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	while (fgets(line, sizeof(line), file)) {
		char *at = line + strlen("NSpid:"), *end;

		if (strncmp(line, "NSpid:", strlen("NSpid:")) != 0)
			continue;
		for (; count < MAX_PID_NAMESPACES; at = end) {
			long id = strtol(at, &end, 10);

			if (end == at)
				break;
			ids[count++] = (pid_t)id;
		}
	}
	fclose(file);
	return count ? count : -ESRCH;
}

int in_root_pid_namespace(void)
{
	struct stat status;

	return stat("/proc/self/ns/pid", &status) == 0 && status.st_ino == ROOT_PID_NAMESPACE_INODE;
}

int server_each_thread(pid_t pid, int (*visit)(pid_t tid, void *context), void *context)
{
	struct dirent *entry;
	char path[64];
	int result = 0;
	DIR *directory;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	directory = opendir(path);
	if (!directory)
		return -errno;
	while (!result && (entry = readdir(directory))) {
		pid_t tid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (tid > 0)
			result = visit(tid, context);
	}
	closedir(directory);
	return result;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The process that is watched, as /proc shows it. */
#ifndef FORKTAIL_SERVER_H
#define FORKTAIL_SERVER_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define MAX_PID_NAMESPACES 32

/* Its ids from this namespace inwards: the last is the one it knows itself by. Returns how many, or
 * a negative errno. */
int server_namespace_ids(pid_t pid, pid_t ids[MAX_PID_NAMESPACES]);

/* Whether ids in /proc are those of the root PID namespace, which BPF helpers return. */
int in_root_pid_namespace(void);

/* Calls visit for each thread; stops at the first that returns non-zero and returns it. */
int server_each_thread(pid_t pid, int (*visit)(pid_t tid, void *context), void *context);

#endif

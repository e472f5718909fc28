/* SPDX-License-Identifier: Apache-2.0 */
/* A fork of the loader's own: shows what a fork fires on this kernel, whatever its version. */
#ifndef FORKTAIL_TRIAL_H
#define FORKTAIL_TRIAL_H

#include <stdbool.h>

struct probe_bpf;

/* Learns from where fork first asks for per-CPU memory. False where it never does, as before Linux
 * 6.2, so that the attached program would see no fork begin. */
bool trial_fork(struct probe_bpf *bpf);

#endif

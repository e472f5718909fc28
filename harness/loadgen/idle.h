/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_IDLE_H
#define FORKTAIL_IDLE_H

#include "traffic.h"

#include <stddef.h>
#include <stdint.h>

#define IDLE_MAX 1000

/*
 * Sends the first queries of the workload one after the other, before there is any load, and
 * writes how long each took from its sending to the arrival of its reply, ns. Returns how many.
 * They are in no log and no count: the time of a query that meets no other is all they are for.
 */
size_t idle_round_trips(struct traffic *traffic, uint64_t count, uint64_t *round_trips);

#endif

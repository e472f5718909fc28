/* SPDX-License-Identifier: Apache-2.0 */
/* Follows one server from attaching to the end. */
#ifndef FORKTAIL_WATCH_H
#define FORKTAIL_WATCH_H

#include "options.h"

enum exit_code watch(const struct options *options, int server_pidfd);

#endif

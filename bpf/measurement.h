/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_MEASUREMENT_H
#define FORKTAIL_MEASUREMENT_H

#include "probe.h"

extern const char *const measurement_names[MEASUREMENTS];
extern const char *const event_kind_names[EVENT_KINDS];

#endif

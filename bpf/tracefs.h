/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FORKTAIL_TRACEFS_H
#define FORKTAIL_TRACEFS_H

/* Where tracefs is mounted; mounts it where it is not, as a fresh machine or a small guest leaves
 * it. */
const char *tracefs_path(void);

#endif

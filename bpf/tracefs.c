// SPDX-License-Identifier: Apache-2.0
#include "tracefs.h"

#include <sys/mount.h>
#include <unistd.h>

#define TRACEFS "/sys/kernel/tracing"
#define TRACEFS_IN_DEBUGFS "/sys/kernel/debug/tracing"

const char *tracefs_path(void)
{
	if (access(TRACEFS "/events", F_OK) == 0)
		return TRACEFS;
	if (access(TRACEFS_IN_DEBUGFS "/events", F_OK) == 0)
		return TRACEFS_IN_DEBUGFS;
	/* Where this fails the tracepoints that need it are rejected with their own errno. */
	mount("tracefs", TRACEFS, "tracefs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
	return TRACEFS;
}

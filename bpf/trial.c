// SPDX-License-Identifier: Apache-2.0
#include "trial.h"

#include <sys/wait.h>
#include <unistd.h>

#include "probe.h"
#include "probe.skel.h"

bool trial_fork(struct probe_bpf *bpf)
{
	pid_t child;

	bpf->bss->trial_call_site = 0;
	bpf->bss->trial_tgid = (uint32_t)getpid();
	child = fork();
	if (!child)
		_exit(0);
	bpf->bss->trial_tgid = 0;
	if (child < 0)
		return false;
	waitpid(child, NULL, 0);
	bpf->bss->fork_call_site = bpf->bss->trial_call_site;
	return bpf->bss->fork_call_site != 0;
}

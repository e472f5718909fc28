/* SPDX-License-Identifier: Apache-2.0 */
#include "fill.h"
#include "options.h"
#include "process.h"
#include "run.h"
#include "schedule.h"

int main(int argc, char **argv)
{
	struct options options = options_parse(argc, argv);

	process_follow_parent();
	switch (options.command) {
	case COMMAND_FILL:
		return fill(&options);
	case COMMAND_RUN:
		return run(&options);
	case COMMAND_SCHEDULE:
		return schedule(&options);
	}
	return 0;
}

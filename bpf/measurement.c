// SPDX-License-Identifier: Apache-2.0
#include "measurement.h"

const char *const measurement_names[MEASUREMENTS] = {
    [MEASURE_FORK] = "fork",
    [MEASURE_PAGE_TABLE_COPY] = "page_table_copy",
    [MEASURE_INTERRUPTION] = "interruption",
    [MEASURE_FAULT] = "fault",
    [MEASURE_RUN_QUEUE] = "run_queue",
    [MEASURE_WINDOW_END] = "window_end",
    [MEASURE_RENAME] = "rename",
    [MEASURE_FLIGHT] = "flight",
};

const char *const event_kind_names[EVENT_KINDS] = {
    [EVENT_FORK] = "fork",
    [EVENT_PAGE_TABLE_COPY] = "page_table_copy",
    [EVENT_INTERRUPTION] = "interruption",
    [EVENT_FAULT] = "fault",
    [EVENT_RUN_QUEUE] = "run_queue",
    [EVENT_CHILD_EXIT] = "child_exit",
    [EVENT_WINDOW_END] = "window_end",
    [EVENT_RENAME] = "rename",
    [EVENT_FLIGHT] = "flight",
    [EVENT_FORK_UNMEASURED] = "fork_unmeasured",
    [EVENT_BLOCKED] = "blocked",
};

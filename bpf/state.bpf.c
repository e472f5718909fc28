// SPDX-License-Identifier: GPL-2.0-only
#include "state.bpf.h"

char LICENSE[] SEC("license") = "GPL";

struct events_map events SEC(".maps");
struct landmarks_map landmarks SEC(".maps");
struct counts_map counts SEC(".maps");
struct threads_map threads SEC(".maps");
struct children_map children SEC(".maps");

const volatile __u32 server_tgid = 0;
const volatile __u64 min_duration_ns[EVENT_KINDS] = {};
const volatile __u64 page_table_gfp_set = 0;
const volatile __u64 page_table_gfp_clear = 0;

/* Opened by the loader when armed, closed here the moment the window ends. */
volatile __u32 gate_open = 0;
/* What a thread began before this was never seen to end. */
volatile __u64 gate_opened_ns = 0;
/* The child whose end closes the window: the first fork since arming. */
volatile __u32 window_child = 0;
struct thread main_thread = {};
/* Where in the kernel a fork first asks for per-CPU memory, learned by a fork of the loader. */
volatile __u64 fork_call_site = 0;
/* The loader while it tries out what its own fork fires, and the first call site that was seen. */
volatile __u32 trial_tgid = 0;
volatile __u64 trial_call_site = 0;

# SPDX-License-Identifier: Apache-2.0
"""Who has to share a CPU with the server: its snapshot's child, and the load generator."""

from __future__ import annotations

import os
from collections.abc import Set

from forktail.measure.server import parse_cpus
from forktail.workload import Workload

_SERVER_LISTS = ("server_cpulist", "server-cpulist")
_CHILD_LISTS = ("bgsave_cpulist", "bgsave-cpulist")
"""Redis' own directives, in either spelling; they have the last word over the CPUs that a process was started on."""


def contention(workload: Workload, usable: Set[int] | None = None) -> list[str]:
    """Sentences about who has to share a CPU with the server, each with its remedy.

    `usable` are the CPUs that affinity and cpuset leave to this process and so to the server; None: look.
    """
    usable = os.sched_getaffinity(0) if usable is None else usable
    pinned = parse_cpus(workload.server.cpus) if workload.server.cpus else set(usable)
    try:
        server = _directive(workload, _SERVER_LISTS) or pinned
        child = _directive(workload, _CHILD_LISTS) or pinned
    except ValueError:
        return []  # A list with a stride, as in "0-7:2": the server reads it, and nothing here is sure.
    found = []
    if len(server | child) == 1:
        (cpu,) = server
        if workload.server.cpus:
            whose = f"server.cpus = {workload.server.cpus!r} is one CPU"
            remedy = "name two CPUs or more in server.cpus"
        elif len(usable) == 1:
            whose = f"Affinity or cpuset leaves one CPU ({cpu}) to the server"
            remedy = "give this process two CPUs or more"
        else:
            whose = f"server.config leaves one CPU ({cpu}) to the server"
            remedy = "name another CPU in bgsave_cpulist"
        found.append(
            f"{whose}, and the snapshot's child competes with it for that CPU: what queries wait for the child counts "
            f"as the snapshot's latency. To keep them apart, {remedy}."
        )
    generator = workload.load.cpu
    if generator >= 0 and not workload.load.host and generator in server | child:
        left = (server | child) - {generator}
        rest = f"and leaves CPU {', '.join(map(str, sorted(left)))} undisturbed" if left else "and leaves it no other"
        found.append(
            f"load.cpu = {generator} is a CPU of the server or its child, {rest}: the generator competes with them. "
            "Name a CPU in load.cpu that server.cpus has not."
        )
    return found


def _directive(workload: Workload, names: tuple[str, ...]) -> set[int]:
    """The CPUs of a directive of the server's configuration; empty where it has none."""
    text = next((value for key, value in workload.server.config.items() if key.lower() in names), "")
    return parse_cpus(text) if text else set()

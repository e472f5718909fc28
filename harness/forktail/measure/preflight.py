# SPDX-License-Identifier: Apache-2.0
"""The check before a run: whether this host can carry the workload, everything wrong told at once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from forktail.errors import BadInput, EnvironmentLacks, ForktailError
from forktail.flavour import flavour_here
from forktail.measure import probe, server
from forktail.measure.engine import find_program
from forktail.measure.generator import find_generator
from forktail.measure.mechanism import check_mechanism
from forktail.measure.native import find_native
from forktail.measure.proc import memory_bytes
from forktail.measure.remote_load import ask_about
from forktail.units import format_size
from forktail.workload import Workload

RESIDENT_SHARE = 1.35
"""Resident bytes per payload byte: 1 KiB lies in jemalloc's 1280-byte class, its key and entry in 100 more."""

QUERY_RECORD_BYTES = 24
_DISK_RESERVE = 64 * 2**20


def memory_needed(workload: Workload) -> int:
    """Bytes that must be available: the data set, and its copy when every page is written during the snapshot."""
    longest_s = (workload.run.warm_up + workload.run.limit + workload.run.cool_down) / 1e9
    log = workload.load.rate * longest_s * QUERY_RECORD_BYTES
    return round(2 * workload.server.size * RESIDENT_SHARE + log)


def disk_needed(workload: Workload) -> int:
    """Bytes that must be free: the RDB, the query log and a reserve for events and the report."""
    longest_s = (workload.run.warm_up + workload.run.limit + workload.run.cool_down) / 1e9
    return round(workload.server.size * 1.1 + workload.load.rate * longest_s * QUERY_RECORD_BYTES + _DISK_RESERVE)


def check_root() -> None:
    if os.geteuid() != 0:
        raise EnvironmentLacks("Attaching eBPF probes needs root: run it under sudo.")


def check_btf() -> None:
    if not Path("/sys/kernel/btf/vmlinux").exists():
        raise EnvironmentLacks(
            "The kernel has no BTF (/sys/kernel/btf/vmlinux): boot one built with CONFIG_DEBUG_INFO_BTF=y."
        )


def check_natives() -> None:
    find_native(probe.NAME)


def check_memory(workload: Workload) -> None:
    available, needed = memory_bytes()["MemAvailable"], memory_needed(workload)
    if needed > available:
        raise EnvironmentLacks(
            f"server.size {format_size(workload.server.size)} needs {needed / 2**30:.1f} GiB of memory "
            f"(the data twice, and the query log), and {available / 2**30:.1f} GiB are available: "
            "lower server.size, or free memory."
        )


def check_disk(workload: Workload, directory: Path) -> None:
    existing = next(path for path in [directory, *directory.parents] if path.exists())
    free, needed = shutil.disk_usage(existing).free, disk_needed(workload)
    if needed > free:
        raise EnvironmentLacks(
            f"The run needs {needed / 2**30:.1f} GiB at {existing}, and {free / 2**30:.1f} GiB are free: "
            "choose another --out, or free space."
        )


def check_port(workload: Workload) -> None:
    port = workload.server.port
    if port and not server.port_is_free(port):
        raise BadInput(f"server.port {port} is in use: choose another, or 0 for a free one.")


def cpu_list(workload: Workload) -> set[int]:
    """The CPUs that the server is pinned to, none where it is free; BadInput where server.cpus is no list."""
    try:
        return server.parse_cpus(workload.server.cpus) if workload.server.cpus else set()
    except ValueError as error:
        raise BadInput(f"server.cpus {workload.server.cpus!r} is no CPU list: write it as in '0-3,8'.") from error


def check_cpus(workload: Workload) -> None:
    usable = os.sched_getaffinity(0)
    wanted = cpu_list(workload)
    if workload.load.cpu >= 0 and not workload.load.host:
        wanted = wanted | {workload.load.cpu}
    if not wanted <= usable:
        names = ", ".join(map(str, sorted(wanted - usable)))
        raise BadInput(f"server.cpus and load.cpu name CPU {names}, but usable are {sorted(usable)}.")


def check_host(workload: Workload) -> None:
    """See that the host that is to send the load answers, and runs this forktail."""
    if workload.load.host:
        ask_about(workload.load.host)


def check_fork() -> None:
    check_mechanism(flavour_here())


def preflight(workload: Workload, directory: Path) -> None:
    """Check everything that the run needs; one error that lists every fault, and its mend, if any is found."""
    checks: list[Callable[[], object]] = [
        check_root,
        check_btf,
        check_natives,
        check_fork,
        lambda: find_program(workload),
        lambda: find_generator(workload),
        lambda: check_memory(workload),
        lambda: check_disk(workload, directory),
        lambda: check_port(workload),
        lambda: check_cpus(workload),
        lambda: check_host(workload),
    ]
    faults: list[ForktailError] = []
    for check in checks:
        try:
            check()
        except ForktailError as fault:
            faults.append(fault)
    if not faults:
        return
    # What the user gave can be mended at once, so it names the kind of the whole only when it is all there is.
    kind = BadInput if all(isinstance(fault, BadInput) for fault in faults) else EnvironmentLacks
    if len(faults) == 1:
        raise kind(str(faults[0]))
    lines = "\n".join(f"  - {fault}" for fault in faults)
    raise kind(f"This host cannot carry the run, for {len(faults)} reasons:\n{lines}")

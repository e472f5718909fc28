# SPDX-License-Identifier: Apache-2.0
"""The environment of a run: everything of the host that can move a number, recorded as it was."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import re
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import forktail
from forktail.flavour import UNKNOWN, flavour_of, signs, unknown_warning
from forktail.measure.proc import chosen, memory_bytes, read_text

_THP = "/sys/kernel/mm/transparent_hugepage"
_CPUFREQ = "/sys/devices/system/cpu/cpu0/cpufreq"
_PACKAGES = ("pydantic", "redis", "typer", "rich")
LAB_FILE = "/etc/forktail-lab.json"
"""In a guest of the lab: what machine it was given, which it cannot find out by itself."""
LAB_SCHEMA = "forktail.lab/1"
HOST_FILE = "/etc/forktail-host.json"
"""On a host whose kernel playbooks switch: which host it is, and how its kernel was booted."""


def _config(release: str) -> bytes | None:
    try:
        return gzip.decompress(Path("/proc/config.gz").read_bytes())
    except OSError:
        pass
    try:
        return Path(f"/boot/config-{release}").read_bytes()
    except OSError:
        return None


def kernel() -> dict[str, Any]:
    """Release, build, flavour, command line and the digest of the configuration.

    `mechanism_signs` are what points to a fork mechanism that forktail does not know (`flavour.signs`).
    """
    name = os.uname()
    found = signs(name.release)
    config = _config(name.release)
    hertz = re.search(rb"^CONFIG_HZ=(\d+)", config or b"", re.MULTILINE)
    return {
        "flavour": flavour_of(name.release, found),
        "mechanism_signs": found,
        "release": name.release,
        "version": name.version,
        "machine": name.machine,
        "config_sha256": hashlib.sha256(config).hexdigest() if config else None,
        "hz": int(hertz[1]) if hertz else None,
        "preemption": "PREEMPT" if "PREEMPT" in name.version else "none",
        "btf": Path("/sys/kernel/btf/vmlinux").exists(),
        "boot_id": read_text("/proc/sys/kernel/random/boot_id"),
    }


def cpu_model() -> str:
    """What the CPU calls itself."""
    model = re.search(r"^model name\s*:\s*(.*)$", read_text("/proc/cpuinfo") or "", re.MULTILINE)
    return model[1] if model else platform.processor()


def _cpu() -> dict[str, Any]:
    info = read_text("/proc/cpuinfo") or ""
    vulnerabilities = Path("/sys/devices/system/cpu/vulnerabilities")
    mitigations = {path.name: read_text(path) for path in sorted(vulnerabilities.glob("*"))}
    no_turbo = read_text("/sys/devices/system/cpu/intel_pstate/no_turbo")
    boost = read_text("/sys/devices/system/cpu/cpufreq/boost")
    return {
        "model": cpu_model(),
        "online": read_text("/sys/devices/system/cpu/online"),
        "usable": sorted(os.sched_getaffinity(0)),
        "numa_nodes": read_text("/sys/devices/system/node/online"),
        "smt": read_text("/sys/devices/system/cpu/smt/active"),
        "governor": read_text(f"{_CPUFREQ}/scaling_governor"),
        "turbo": {"0": True, "1": False}.get(no_turbo or "") if no_turbo else {"1": True, "0": False}.get(boost or ""),
        "hypervisor": "hypervisor" in info,
        "mitigations": mitigations,
        "load_average": os.getloadavg(),
    }


def _memory() -> dict[str, Any]:
    fields = memory_bytes()
    return {
        "total_bytes": fields.get("MemTotal"),
        "available_bytes": fields.get("MemAvailable"),
        "swap_bytes": fields.get("SwapTotal"),
    }


def _settings() -> dict[str, Any]:
    return {
        "transparent_hugepage": chosen(read_text(f"{_THP}/enabled")),
        "transparent_hugepage_defrag": chosen(read_text(f"{_THP}/defrag")),
        "overcommit_memory": read_text("/proc/sys/vm/overcommit_memory"),
        "swappiness": read_text("/proc/sys/vm/swappiness"),
        "ksm": read_text("/sys/kernel/mm/ksm/run"),
        "numa_balancing": read_text("/proc/sys/kernel/numa_balancing"),
        "compaction_proactiveness": read_text("/proc/sys/vm/compaction_proactiveness"),
        "somaxconn": read_text("/proc/sys/net/core/somaxconn"),
    }


def _clock() -> dict[str, Any]:
    base = "/sys/devices/system/clocksource/clocksource0"
    return {
        "source": read_text(f"{base}/current_clocksource"),
        "monotonic_resolution_ns": round(time.clock_getres(time.CLOCK_MONOTONIC) * 1e9),
        "monotonic_ns": time.monotonic_ns(),
        "realtime_ns": time.time_ns(),
    }


def _disk(directory: Path) -> dict[str, Any]:
    device = directory.stat().st_dev
    mount = {"device": f"{os.major(device)}:{os.minor(device)}", "filesystem": None, "source": None}
    for line in (read_text("/proc/self/mountinfo") or "").splitlines():
        left, _, right = line.partition(" - ")
        if left.split()[2] == mount["device"]:
            mount["filesystem"], mount["source"] = right.split()[:2]
    return mount


def _lab() -> dict[str, Any] | None:
    text = read_text(LAB_FILE)
    if text is None:
        return None
    found: dict[str, Any] = json.loads(text)
    return found


def _host() -> dict[str, Any] | None:
    """What the switch of the kernel left behind; None where this boot is of somebody else's making."""
    try:
        found: dict[str, Any] = json.loads(read_text(HOST_FILE) or "null") or {}
    except ValueError:
        return None
    return found if found.get("boot_id") == read_text("/proc/sys/kernel/random/boot_id") else None


def environment(directory: Path) -> dict[str, Any]:
    """Everything recorded of the host, as `environment.json`; `directory` is where the snapshot is written."""
    return {
        "schema": "forktail.environment/1",
        "kernel": kernel() | {"command_line": read_text("/proc/cmdline")},
        "cpu": _cpu(),
        "memory": _memory(),
        "settings": _settings(),
        "disk": _disk(directory),
        "clock": _clock(),
        "lab": _lab(),
        "host": _host(),
        "versions": {
            "forktail": forktail.__version__,
            "python": platform.python_version(),
            "distribution": platform.freedesktop_os_release().get("PRETTY_NAME"),
            **{name: metadata.version(name) for name in _PACKAGES},
        },
    }


def deviations(recorded: dict[str, Any], load_is_here: bool = True) -> list[str]:
    """Sentences about settings that differ from what a comparable measurement pins, each with its mend."""
    settings, memory, cpu = recorded["settings"], recorded["memory"], recorded["cpu"]
    found = []
    kernel_of = recorded["kernel"]
    if kernel_of["flavour"] == UNKNOWN:
        found.append(unknown_warning(kernel_of["release"], kernel_of["mechanism_signs"]))
    if settings["transparent_hugepage"] == "always":
        found.append(
            "Transparent huge pages are on for every process (the server switches them off for itself): "
            "`echo never > /sys/kernel/mm/transparent_hugepage/enabled`."
        )
    if settings["overcommit_memory"] != "1":
        found.append("vm.overcommit_memory is not 1, so a fork may be refused: `sysctl vm.overcommit_memory=1`.")
    if memory["swap_bytes"]:
        found.append("Swap is on, and a swapped page turns a query into a disk read: `swapoff -a`.")
    if settings["ksm"] not in (None, "0"):
        found.append("KSM merges pages behind the server's back: `echo 0 > /sys/kernel/mm/ksm/run`.")
    if settings["numa_balancing"] not in (None, "0"):
        found.append("NUMA balancing unmaps pages at random: `sysctl kernel.numa_balancing=0`.")
    if cpu["governor"] not in (None, "performance"):
        found.append(f"The CPU governor is {cpu['governor']}: `cpupower frequency-set -g performance`.")
    if len(cpu["usable"]) < (4 if load_is_here else 3):
        sharing = (
            "the server, its snapshot child and the generator" if load_is_here else "the server and its snapshot child"
        )
        found.append(
            f"{len(cpu['usable'])} CPUs are shared by {sharing}: "
            "part of the snapshot's latency is waiting for a CPU, which a larger host does not show."
        )
    lab = recorded["lab"]
    if lab and lab.get("icount"):
        of_all = " of whichever CPU has its turn" if lab["cpus"] > 1 else ""
        found.append(
            f"The host is emulated by QEMU's TCG, 1 instruction{of_all} = 1 ns: times are counts of instructions, "
            "and a wait for a disk is no real one."
        )
    elif lab and lab["accelerator"] == "tcg":
        found.append("The host is emulated by QEMU's TCG: absolute times are several times a real machine's.")
    elif cpu["hypervisor"]:
        found.append("The host is a virtual machine: time taken by its neighbours appears as latency.")
    return found

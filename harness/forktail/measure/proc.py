# SPDX-License-Identifier: Apache-2.0
"""What /proc and /sys tell about the host and its processes, read without a library."""

from __future__ import annotations

from pathlib import Path


def read_text(path: str | Path) -> str | None:
    """The stripped text of a file of /proc or /sys, or None where it is not there or not readable."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def memory_bytes() -> dict[str, int]:
    """Every field of /proc/meminfo, in bytes."""
    fields = {}
    for line in (read_text("/proc/meminfo") or "").splitlines():
        name, _, value = line.partition(":")
        number, *unit = value.split()
        fields[name] = int(number) * (1024 if unit == ["kB"] else 1)
    return fields


def process_bytes(pid: int) -> dict[str, int]:
    """Resident set and page tables of a process: `rss_bytes`, `page_table_bytes`."""
    fields = {}
    for line in (read_text(f"/proc/{pid}/status") or "").splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "VmPTE"):
            fields[name] = int(value.split()[0]) * 1024
    return {"rss_bytes": fields.get("VmRSS", 0), "page_table_bytes": fields.get("VmPTE", 0)}


def chosen(setting: str | None) -> str | None:
    """The active word of a setting such as `always [madvise] never`."""
    if setting is None or "[" not in setting:
        return setting
    return setting.split("[", 1)[1].split("]", 1)[0]

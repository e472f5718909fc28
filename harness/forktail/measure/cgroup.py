# SPDX-License-Identifier: Apache-2.0
"""A memory cgroup of its own for the server, in whichever hierarchy has the memory controller, and its removal."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from forktail.errors import EnvironmentLacks, RunFailed
from forktail.measure.proc import read_text

PREFIX = "forktail-"
_PROCS = "cgroup.procs"
_CONTROL = "cgroup.subtree_control"

# It outlives a harness that is killed: then, as at every other end, its standard input closes. What is still in the
# cgroup is a snapshot's child that lost its server, and a cgroup with a process in it cannot be removed.
_GUARD = """
cat >/dev/null
tries=0
while [ -d "$1" ] && [ $tries -lt 300 ]; do
    while read -r pid; do [ "$pid" = 0 ] || kill -9 "$pid"; done <"$1/cgroup.procs"
    rmdir "$1" && break
    tries=$((tries + 1))
    sleep 0.1
done
"""


@dataclass(frozen=True)
class Hierarchy:
    """A mounted cgroup hierarchy that has the memory controller; `version` is 1 or 2."""

    mount: Path
    version: int


def memory_hierarchy(mounts: str | None = None) -> Hierarchy:
    """Where memory cgroups are made on this host; `mounts` stands for the text of /proc/self/mountinfo.

    A controller is in one hierarchy at a time, so on a host with both versions the one that has it is taken.
    Raises EnvironmentLacks where none has.
    """
    for line in (mounts if mounts is not None else read_text("/proc/self/mountinfo") or "").splitlines():
        where, _, what = line.partition(" - ")
        kind, _, options = what.split(" ", 2)
        mount = Path(where.split(" ")[4].encode().decode("unicode_escape"))
        if kind == "cgroup" and "memory" in options.split(","):
            return Hierarchy(mount, 1)
        if kind == "cgroup2" and "memory" in (read_text(mount / "cgroup.controllers") or "").split():
            return Hierarchy(mount, 2)
    raise EnvironmentLacks(
        "No cgroup hierarchy here has the memory controller: boot without cgroup_disable=memory, and mount one "
        "(`mount -t cgroup2 none /sys/fs/cgroup`)."
    )


@dataclass(frozen=True)
class MemoryCgroup:
    """A cgroup that is there for one server and its children."""

    path: Path
    version: int

    @property
    def procs(self) -> Path:
        """Where a process enters: one that writes 0 is moved itself."""
        return self.path / _PROCS

    def pids(self) -> list[int]:
        """The processes in it."""
        return [int(pid) for pid in (read_text(self.procs) or "").split()]


@contextmanager
def memory_cgroup(hierarchy: Hierarchy) -> Iterator[MemoryCgroup]:
    """A new cgroup at the top of the hierarchy, removed at the end, and even when this process is killed.

    At the top, as a cgroup of version 2 that has processes cannot hand its controllers down, and the root can.
    What is left in it at the end is killed. Raises EnvironmentLacks where it cannot be made, and RunFailed where it
    cannot be removed.
    """
    path = _make(hierarchy)
    guard = subprocess.Popen(
        ["sh", "-c", _GUARD, "forktail-guard", path],  # noqa: S607
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )
    assert guard.stdin is not None
    try:
        yield MemoryCgroup(path, hierarchy.version)
    finally:
        guard.stdin.close()
        guard.wait()
    if path.exists():
        raise RunFailed(f"The cgroup {path} cannot be removed: end the processes in its {_PROCS}, then `rmdir` it.")


def _make(hierarchy: Hierarchy) -> Path:
    if hierarchy.version == 2:
        _hand_down(hierarchy.mount / _CONTROL)
    try:
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir=hierarchy.mount))
    except OSError as error:
        raise EnvironmentLacks(
            f"No memory cgroup can be made below {hierarchy.mount} ({error.strerror}): run as root, with the "
            "hierarchy mounted for writing."
        ) from error


def _hand_down(control: Path) -> None:
    if "memory" in (read_text(control) or "").split():
        return
    try:
        control.write_text("+memory", encoding="ascii")
    except OSError as error:
        raise EnvironmentLacks(
            f"{control} refuses +memory ({error.strerror}), so that no cgroup below it has the memory controller: run "
            "on the host itself and not in a container, or enable it there."
        ) from error

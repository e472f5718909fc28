# SPDX-License-Identifier: Apache-2.0
"""The fork mechanism of the kernel at hand: switched on for the server, and seen to be on before each snapshot.

A silent fall-back to the default fork is the likeliest false result of all, so what was read back is kept in the
manifest, and the analysis looks at the fork itself besides.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from forktail.errors import EnvironmentLacks, RunFailed
from forktail.flavour import ASYNC_FORK, DEFAULT, ODF, UNKNOWN
from forktail.measure.cgroup import MemoryCgroup, memory_cgroup, memory_hierarchy
from forktail.measure.proc import read_text
from forktail.workload import Snapshot

USE_ODF = "use_odf"
"""In /proc/PID: 1 lets the process' forks share page tables."""
KNOB = "memory.async_fork"
"""In a memory cgroup of either version: how many threads copy page tables after fork, 0 for fork as it is."""


class Mechanism:
    """How the server is to fork: `knob` is the file that says so, None where there is nothing to switch."""

    def __init__(self, name: str, wanted: str | None = None, note: str | None = None) -> None:
        self.name = name
        self.knob: Path | None = None
        self.wanted = wanted
        """What the knob is to hold."""
        self.cgroup: MemoryCgroup | None = None
        """Where the server is to be from its first instruction on; None where it may be anywhere."""
        self.copy_threads: int | None = None
        """How many threads copy page tables after fork; None where fork does it, or the parent."""
        self.note = note
        """What of the workload has no effect with this mechanism."""

    def adopt(self, pid: int) -> None:
        """Take the server that has just started; RunFailed or EnvironmentLacks where it will not fork as wanted."""

    def verify(self) -> None:
        """RunFailed where the next fork would be another: the knob no longer holds what was written."""
        if self.knob and self.read_back() != self.wanted:
            raise RunFailed(
                f"{self.knob} holds {self.read_back()!r} and not {self.wanted!r}: the snapshot would use another fork."
            )

    def read_back(self) -> str | None:
        """What the knob holds now."""
        return read_text(self.knob) if self.knob else None

    def as_json(self) -> dict[str, str | int | None]:
        """For the manifest."""
        return {
            "name": self.name,
            "knob": str(self.knob) if self.knob else None,
            "wanted": self.wanted,
            "read_back": self.read_back(),
            "cgroup": str(self.cgroup.path) if self.cgroup else None,
            "copy_threads": self.copy_threads,
            "note": self.note,
        }

    def _set(self, knob: Path, flavour: str) -> None:
        assert self.wanted is not None
        self.knob = knob
        fault = "it is not there"
        try:
            if knob.exists():
                knob.write_text(self.wanted, encoding="ascii")
                return self.verify()
        except OSError as error:
            fault = f"writing {self.wanted} to it: {error.strerror}"
        raise EnvironmentLacks(
            f"The kernel calls itself {flavour}, but {knob} does not switch it ({fault}): "
            f"build it anew by `forktail kernel build {flavour}`."
        )


class OnDemandFork(Mechanism):
    """The child shares the last level of page tables: asked for by process."""

    def __init__(self, note: str | None = None) -> None:
        super().__init__(ODF, "1", note)

    def adopt(self, pid: int) -> None:
        self._set(Path(f"/proc/{pid}/{USE_ODF}"), ODF)


class AsyncFork(Mechanism):
    """The child copies the page tables after fork: asked for by memory cgroup. With 0 threads it is the default fork.

    A new cgroup has its parent's value, so that the default fork has to be asked for as well.
    """

    def __init__(self, cgroup: MemoryCgroup, threads: int, note: str | None = None) -> None:
        super().__init__(ASYNC_FORK if threads else DEFAULT, str(threads), note)
        self.cgroup = cgroup
        self.copy_threads = threads or None
        self._pid = 0
        self._set(cgroup.path / KNOB, ASYNC_FORK)

    def adopt(self, pid: int) -> None:
        self._pid = pid
        self.verify()

    def verify(self) -> None:
        super().verify()
        assert self.cgroup is not None
        if self._pid and self._pid not in self.cgroup.pids():
            raise RunFailed(
                f"The server (pid {self._pid}) is not in its cgroup {self.cgroup.path} any more, so that its fork is "
                "not told by it: keep other programs from moving it."
            )


def check_mechanism(flavour: str) -> None:
    """EnvironmentLacks where this host cannot give the server what the kernel's mechanism is asked for by."""
    if flavour != ASYNC_FORK:
        return
    knob = memory_hierarchy().mount / KNOB
    if not knob.exists():
        raise EnvironmentLacks(
            f"The kernel calls itself {flavour}, but {knob} is not there: build it anew by "
            f"`forktail kernel build {flavour}`."
        )


@contextmanager
def fork_mechanism(flavour: str, snapshot: Snapshot) -> Iterator[Mechanism]:
    """The mechanism of a kernel flavour for the time of a run, made before the server and gone after it."""
    switched = snapshot.fork != DEFAULT
    note = None
    if snapshot.copy_threads != Snapshot().copy_threads and not (flavour == ASYNC_FORK and switched):
        why = "snapshot.fork leaves async-fork off" if flavour == ASYNC_FORK else "this kernel has no async-fork"
        if flavour == UNKNOWN:
            why = "this kernel's fork mechanism is unknown"
        note = f"snapshot.copy_threads = {snapshot.copy_threads} has no effect: {why}."
    if flavour == ASYNC_FORK:
        with memory_cgroup(memory_hierarchy()) as cgroup:
            yield AsyncFork(cgroup, snapshot.copy_threads if switched else 0, note)
    elif flavour == ODF and switched:
        yield OnDemandFork(note)
    elif flavour == UNKNOWN:
        off = "" if switched else "snapshot.fork = default has no effect: no switch of this kernel's fork is known."
        yield Mechanism(UNKNOWN, note=" ".join(filter(None, (off, note))) or None)
    else:
        yield Mechanism(DEFAULT, note=note)

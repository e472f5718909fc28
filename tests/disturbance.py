# SPDX-License-Identifier: Apache-2.0
"""What a busy host did to a measurement, recorded while it was made, and how far that excuses it.

A test compares a measurement with a known truth. Other load on the host may part the two, and the kernel counts how
long a process waited for a CPU and how much the hypervisor stole. So a test is not tried until a try fits: a try that
is off by more than the recorded disturbance explains is a failure at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

MOST_TRIES = 3
_TICK_NS = 10**9 // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Outcome:
    """How far a measurement is from the truth. All three have one unit, whichever the test takes."""

    what: str
    error: float
    tolerance: float
    """What is allowed on a host that does nothing else."""
    disturbance: float
    """What the host added at most, as it was recorded during the try."""

    @property
    def passes(self) -> bool:
        """A disturbance widens the tolerance, but never beyond twice of it: then the try shows too little."""
        return self.error <= self.tolerance + min(self.disturbance, self.tolerance)

    @property
    def explained(self) -> bool:
        """Whether the disturbance can have made all of the error, so that the try is void."""
        return self.error <= self.tolerance + self.disturbance

    def __str__(self) -> str:
        return f"{self.what}: off by {self.error:.4g}, allowed {self.tolerance:.4g}, disturbed {self.disturbance:.4g}"


def settle(attempt: Callable[[], Sequence[Outcome]]) -> None:
    """Make up to MOST_TRIES tries, and print each: the first that is not void passes or fails the test."""
    for number in range(1, MOST_TRIES + 1):
        outcomes = attempt()
        off = [outcome for outcome in outcomes if not outcome.passes]
        print(f"try {number} of {MOST_TRIES}: {'; '.join(map(str, outcomes))}")
        if not off:
            return
        unexplained = [outcome for outcome in off if not outcome.explained]
        if unexplained:
            pytest.fail(f"try {number}: {'; '.join(map(str, unexplained))}")
        print(f"try {number} is void: the recorded disturbance explains {'; '.join(map(str, off))}")
    pytest.fail(f"the host disturbed all of {MOST_TRIES} tries, the last by {'; '.join(map(str, off))}")


class Disturbance:
    """What happens to processes from its making on; a process that is gone counts as far as it was read."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._waited, self._stolen = self._read()

    def _read(self) -> tuple[int, int]:
        return sum(map(waited_ns, self._pids)), stolen_ns()

    def so_far_ns(self) -> int:
        """How long the processes have waited for a CPU, and how much of the host's CPUs was stolen, ns."""
        waited, stolen = self._read()
        return max(0, waited - self._waited) + max(0, stolen - self._stolen)


def waited_ns(pid: int) -> int:
    """How long the threads of a process have waited for a CPU while they could have run, ns."""
    total = 0
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                total += int((thread / "schedstat").read_text().split()[1])
    return total


def stolen_ns(cpu: int | None = None) -> int:
    """How much of a CPU, or of all, the hypervisor has given to others, ns; it is counted in ticks."""
    name = "cpu" if cpu is None else f"cpu{cpu}"
    for line in Path("/proc/stat").read_text().splitlines():
        words = line.split()
        if words[0] == name:
            return int(words[8]) * _TICK_NS
    return 0

# SPDX-License-Identifier: Apache-2.0
"""The guests that a sweep runs in, one a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from forktail.errors import RunFailed
from forktail.lab import registry
from forktail.lab.boot import Tell, guest_for_one_command
from forktail.lab.guest import Guest
from forktail.lab.kernel import LabKernel
from forktail.lab.machine import Machine, memory_short
from forktail.lab.remote import release_in
from forktail.lab.run import run_in
from forktail.sweep.plan import PlannedRun


@dataclass(frozen=True)
class _Held:
    guest: Guest
    end: ExitStack
    """Ends the guest when it is closed."""


class SweepGuests:
    """Guests that live as long as the context: each is booted when its first run is due, and again if it was lost.

    Where the host's memory is not enough for all of them at once, those whose last run is longest ago are ended first.
    """

    def __init__(self, kernels: Mapping[str, LabKernel], machine: Machine, tell: Tell) -> None:
        self._kernels = kernels
        self._machine = machine
        self._tell = tell
        self._held: dict[str, _Held] = {}
        """By flavour, the one used last at the end."""

    def __enter__(self) -> SweepGuests:
        return self

    def __exit__(self, *_: object) -> None:
        for flavour in [*self._held]:
            self._end(flavour)

    def measure(self, run: PlannedRun, path: Path) -> Path:
        """Make a planned run in its kernel's guest; where that hung, as under an old QEMU, once more in another."""
        try:
            return self._measure(run, path)
        finally:
            for held in self._held.values():
                held.guest.rest()

    def _measure(self, run: PlannedRun, path: Path) -> Path:
        guest = self.guest(run.cell.kernel)
        try:
            return run_in(guest, run.cell.workload, path)
        except RunFailed:
            if guest.alive() and release_in(guest) is not None:
                raise
        self._tell(f"The guest of {run.cell.kernel} does not answer any more; making the run in another ...")
        self._end(run.cell.kernel)
        return run_in(self.guest(run.cell.kernel), run.cell.workload, path)

    def guest(self, flavour: str) -> Guest:
        """The guest of a kernel, awake, and booted if need be; EnvironmentLacks where not even one finds memory."""
        for name in [name for name, held in self._held.items() if not held.guest.alive()]:
            self._end(name)
        if flavour in self._held:
            held = self._held.pop(flavour)
        else:
            self._make_room()
            end = ExitStack()
            context = guest_for_one_command(self._kernels[flavour], self._machine, self._tell)
            held = _Held(end.enter_context(context), end)
        self._held[flavour] = held
        held.guest.wake()
        return held.guest

    def _make_room(self) -> None:
        """End guests until one more would find memory even when each has touched all of its own."""
        while self._held and memory_short([self._machine], self._promised()):
            longest_unused = next(iter(self._held))
            self._tell(f"Ending the guest of {longest_unused}: the host has no memory for one more beside it ...")
            self._end(longest_unused)

    def _promised(self) -> int:
        return registry.promised_bytes() + sum(held.guest.untouched_bytes() for held in self._held.values())

    def _end(self, flavour: str) -> None:
        self._held.pop(flavour).end.close()

# SPDX-License-Identifier: Apache-2.0
"""The lab's guests as the hosts of a sweep, one a kernel."""

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
class _Host:
    guest: Guest
    end: ExitStack
    """Ends the guest when it is closed."""


class Hosts:
    """Guests that live as long as the context: each is booted when its first run is due, and again if it was lost.

    Where the host's memory is not enough for all of them at once, those whose last run is longest ago are ended first.
    """

    def __init__(self, kernels: Mapping[str, LabKernel], machine: Machine, tell: Tell) -> None:
        self._kernels = kernels
        self._machine = machine
        self._tell = tell
        self._hosts: dict[str, _Host] = {}
        """By flavour, the one used last at the end."""

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        for flavour in [*self._hosts]:
            self._end(flavour)

    def measure(self, run: PlannedRun, path: Path) -> Path:
        """Make a planned run in its kernel's guest; where that hung, as under an old QEMU, once more in another."""
        try:
            return self._measure(run, path)
        finally:
            for host in self._hosts.values():
                host.guest.rest()

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
        for name in [name for name, host in self._hosts.items() if not host.guest.alive()]:
            self._end(name)
        if flavour in self._hosts:
            host = self._hosts.pop(flavour)
        else:
            self._make_room()
            end = ExitStack()
            context = guest_for_one_command(self._kernels[flavour], self._machine, self._tell)
            host = _Host(end.enter_context(context), end)
        self._hosts[flavour] = host
        host.guest.wake()
        return host.guest

    def _make_room(self) -> None:
        """End guests until one more would find memory even when each has touched all of its own."""
        while self._hosts and memory_short([self._machine], self._promised()):
            longest_unused = next(iter(self._hosts))
            self._tell(f"Ending the guest of {longest_unused}: the host has no memory for one more beside it ...")
            self._end(longest_unused)

    def _promised(self) -> int:
        return registry.promised_bytes() + sum(host.guest.untouched_bytes() for host in self._hosts.values())

    def _end(self, flavour: str) -> None:
        self._hosts.pop(flavour).end.close()

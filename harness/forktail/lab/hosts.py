# SPDX-License-Identifier: Apache-2.0
"""The lab's guests as the hosts of a sweep, one a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from forktail.lab.boot import Tell, guest_for_one_command
from forktail.lab.guest import Guest
from forktail.lab.kernel import LabKernel
from forktail.lab.machine import Machine
from forktail.lab.run import run_in
from forktail.sweep.plan import PlannedRun


class Hosts:
    """Guests that live as long as the context: each is booted when its first run is due, and again if it was lost."""

    def __init__(self, kernels: Mapping[str, LabKernel], machine: Machine, tell: Tell) -> None:
        self._kernels = kernels
        self._machine = machine
        self._tell = tell
        self._guests: dict[str, Guest] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def measure(self, run: PlannedRun, path: Path) -> Path:
        """Make a planned run in its kernel's guest."""
        return run_in(self._guest(run.cell.kernel), run.cell.workload, path)

    def _guest(self, flavour: str) -> Guest:
        guest = self._guests.get(flavour)
        if guest is None or not guest.alive():
            context = guest_for_one_command(self._kernels[flavour], self._machine, self._tell)
            guest = self._guests[flavour] = self._stack.enter_context(context)
        return guest

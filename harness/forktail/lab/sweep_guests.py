# SPDX-License-Identifier: Apache-2.0
"""The guests that a sweep runs in: one of each kernel for each run that is made at the same time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from threading import Condition

from forktail.errors import RunFailed
from forktail.lab import registry
from forktail.lab.boot import Tell, guest_for_one_command
from forktail.lab.guest import Guest
from forktail.lab.kernel import LabKernel
from forktail.lab.machine import Machine, memory_short
from forktail.lab.remote import release_in
from forktail.lab.run import run_in
from forktail.sweep.plan import PlannedRun


def side_by_side(machine: Machine) -> int:
    """How many guests may run at the same time without changing each other's times.

    A guest that counts instructions keeps one CPU of the host busy, and is not late when it has to wait for it. Any
    other guest measures the host's time, and runs alone.
    """
    return len(os.sched_getaffinity(0)) if machine.icount else 1


@dataclass(frozen=True)
class _Held:
    guest: Guest
    end: ExitStack
    """Ends the guest when it is closed."""


class SweepGuests:
    """Guests that live as long as the context: each is booted when its first run is due, and again if it was lost.

    Several threads may measure at the same time. A thread that boots a guest must outlive it, as the host's kernel ends
    a guest with the thread that started it. Where the host's memory is not enough for another guest, an idle one is
    ended, the one whose last run is longest ago first; where none is idle, the thread waits for one.
    """

    def __init__(self, kernels: Mapping[str, LabKernel], machine: Machine, tell: Tell) -> None:
        self._kernels = kernels
        self._machine = machine
        self._tell = tell
        self._changed = Condition()
        """Guards what follows, and is notified of every change."""
        self._idle: list[_Held] = []
        """The one used last at the end."""
        self._busy: list[_Held] = []
        self._booting = 0
        self._started: list[Guest] = []
        """Every guest whose process was started and not ended, whether it has booted or not."""
        self._over = False

    def __enter__(self) -> SweepGuests:
        return self

    def __exit__(self, *_: object) -> None:
        """End every guest, whatever it is doing: the threads that use one get a RunFailed."""
        with self._changed:
            self._over = True
            started, idle = [*self._started], [*self._idle]
            self._idle.clear()
            self._changed.notify_all()
        for guest in started:
            guest.end()
        for held in idle:
            held.end.close()

    def measure(self, run: PlannedRun, path: Path) -> Path:
        """Make a planned run in a guest of its kernel; where that hung, as under an old QEMU, once more in another."""
        held = self.take(run.cell.kernel)
        try:
            return run_in(held.guest, run.cell.workload, path)
        except RunFailed:
            if self._over or (held.guest.alive() and release_in(held.guest) is not None):
                raise
            self._tell(f"The guest of {run.cell.kernel} does not answer any more; making the run in another ...")
            self._end(held)
            held = self.take(run.cell.kernel)
            return run_in(held.guest, run.cell.workload, path)
        finally:
            self.give_back(held)

    def take(self, flavour: str) -> _Held:
        """A guest of the kernel for one run, awake, and booted if need be, to be given back.

        Raises EnvironmentLacks where the host has no memory for a single guest, RunFailed once the context is over.
        """
        while True:
            with self._changed:
                held = self._find(flavour)
                if held is None and self._has_room():
                    self._booting += 1
                    break
            if held is not None:
                held.guest.wake()
                return held
        try:
            held = self._boot(flavour)
        finally:
            with self._changed:
                self._booting -= 1
                self._changed.notify_all()
        return held

    def give_back(self, held: _Held) -> None:
        """Let a guest rest until its next run; one that is lost is ended."""
        if not held.guest.alive():
            self._end(held)
            return
        held.guest.rest()
        with self._changed:
            if held in self._busy:
                self._busy.remove(held)
                self._idle.append(held)
            self._changed.notify_all()

    def _find(self, flavour: str) -> _Held | None:
        """An idle guest of the kernel that lives, now busy."""
        if self._over:
            raise RunFailed("The sweep is over: no further guest is booted.")
        for held in [held for held in self._idle if not held.guest.alive()]:
            self._idle.remove(held)
            held.end.close()
        for held in self._idle:
            if held.guest.kernel == self._kernels[flavour]:
                self._idle.remove(held)
                self._busy.append(held)
                return held
        return None

    def _has_room(self) -> bool:
        """Whether one more guest would find memory even when each has touched all of its own; idle ones make room.

        Without room, and while other guests are busy, this waits for a change.
        """
        while memory_short([self._machine], self._promised()):
            if self._idle:
                longest_unused = self._idle.pop(0)
                name = longest_unused.guest.name
                self._tell(f"Ending the guest of {name}: the host has no memory for one more beside it ...")
                self._forget(longest_unused.guest)
                longest_unused.end.close()
            elif self._busy or self._booting:
                self._changed.wait()
                return False
            else:
                break  # Booting it ends in an error that names the memory.
        return True

    def _promised(self) -> int:
        held = sum(held.guest.untouched_bytes() for held in (*self._idle, *self._busy))
        return registry.promised_bytes() + held + self._booting * self._machine.memory_bytes

    def _boot(self, flavour: str) -> _Held:
        end = ExitStack()
        context = guest_for_one_command(self._kernels[flavour], self._machine, self._tell, self._on_start)
        held = _Held(end.enter_context(context), end)
        with self._changed:
            self._busy.append(held)
        return held

    def _on_start(self, guest: Guest) -> None:
        with self._changed:
            self._started.append(guest)
            over = self._over
        if over:
            guest.end()

    def _forget(self, guest: Guest) -> None:
        if guest in self._started:
            self._started.remove(guest)

    def _end(self, held: _Held) -> None:
        with self._changed:
            for place in (self._idle, self._busy):
                if held in place:
                    place.remove(held)
            self._forget(held.guest)
        held.end.close()
        with self._changed:
            self._changed.notify_all()

# SPDX-License-Identifier: Apache-2.0
"""A guest: a QEMU process, known by its pid and start time, and a host over SSH."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from forktail.errors import RunFailed
from forktail.lab.image import Image
from forktail.lab.kernel import LabKernel
from forktail.lab.machine import Machine, qemu_command
from forktail.measure.child import start_child, undisturbed
from forktail.measure.proc import process_bytes, read_text
from forktail.measure.server import free_port

_PORT_TRIES = 5
_ENDED_WITHIN_S = 5.0


@dataclass(frozen=True)
class Guest:
    """A guest that was started; whether it lives is asked of the host each time."""

    name: str
    """What it is called by: its kernel's flavour, or the name of the lab host that it is the machine of."""
    kernel: LabKernel
    machine: Machine
    accelerator: str
    image: Image
    pid: int
    start_ticks: int
    """When its process started, in clock ticks after the host's boot: a later process of the same pid is another."""
    port: int
    console: Path

    def alive(self) -> bool:
        """Whether the very process is still there."""
        return start_ticks(self.pid) == self.start_ticks

    def untouched_bytes(self) -> int:
        """What it may yet take of the host's memory."""
        return max(0, self.machine.memory_bytes - process_bytes(self.pid)["rss_bytes"])

    def rest(self) -> None:
        """Stop a guest that counts instructions until it is woken; its clock stands still.

        Idle, it skips from tick to tick as fast as a core of the host can. Any other guest idles at no cost, and its
        clock would jump.
        """
        if self.machine.icount:
            self._signal(signal.SIGSTOP)

    def wake(self) -> None:
        """Let a guest that rests go on; of no effect on any other."""
        if self.machine.icount:
            self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.alive():
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self) -> None:
        """Make sure that the process is gone; what the guest wrote to its disk goes with it."""
        self.wake()
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + _ENDED_WITHIN_S
            self._signal(number)
            while self.alive() and time.monotonic() < deadline:
                time.sleep(0.02)

    def last_words(self) -> str:
        """The last telling line of the guest's console."""
        lines = (read_text(self.console) or "").splitlines()
        telling = [line.strip() for line in lines if line.strip()]
        panics = [line for line in telling if "Kernel panic" in line]
        return (panics or telling or ["it left no word"])[-1].rstrip(".") + "."


@dataclass(frozen=True)
class Seat:
    """What a lab host keeps from boot to boot, and what this boot's kernel is told besides."""

    name: str
    disk: Path
    port: int
    """Kept unless another process has taken it meanwhile."""
    arguments: str = ""
    network: Sequence[str] = ()
    """QEMU's options for the lab's network."""


def start_ticks(pid: int) -> int | None:
    """When a living process started, in clock ticks after the host's boot; None where there is none."""
    text = read_text(f"/proc/{pid}/stat")
    if text is None:
        return None
    state, *fields = text.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def start_guest(
    kernel: LabKernel,
    machine: Machine,
    accelerator: str,
    image: Image,
    console: Path,
    dies_with_us: bool,
    on_start: Callable[[Guest], object],
    seat: Seat | None = None,
) -> Guest:
    """Start QEMU; the guest's boot is only beginning. RunFailed with QEMU's own words if it does not stay.

    `on_start` is told of the process as soon as there is one, to take care that it does not stay behind. With a `seat`
    the guest is that of a lab host, else it is called by its flavour, and what it writes is thrown away.
    """
    words = ""
    for _ in range(_PORT_TRIES):
        port = seat.port if seat and not words else free_port()
        command = qemu_command(
            machine,
            accelerator,
            kernel.image,
            seat.disk if seat else image.disk,
            port,
            keeps_disk=seat is not None,
            arguments=seat.arguments if seat else "",
            network=seat.network if seat else (),
        )
        # No process may be started and then not be accounted for.
        with console.open("wb") as output, undisturbed():
            process = start_child(command, stdout=output, stderr=subprocess.STDOUT, stays=not dies_with_us)
            ticks = start_ticks(process.pid) or 0
            name = seat.name if seat else kernel.flavour
            guest = Guest(name, kernel, machine, accelerator, image, process.pid, ticks, port, console)
            on_start(guest)
        if _settles(process):
            return guest
        words = (read_text(console) or "it left no word").strip()
        if "host forwarding" not in words:
            break  # Only a port that another took meanwhile is worth another try.
    told = words.splitlines()[-1].rstrip(".")
    raise RunFailed(f"QEMU did not start the guest of {seat.name if seat else kernel.flavour}: {told}.")


def _settles(process: subprocess.Popen[bytes]) -> bool:
    """Whether QEMU took its options: what it refuses ends it within a moment."""
    try:
        process.wait(0.3)
    except subprocess.TimeoutExpired:
        return True
    return False


def wait_for_guest(guest: Guest, ready: Callable[[], bool], seconds: float) -> None:
    """Wait until the guest answers; RunFailed with its console's last words if it ends or the time is over."""
    deadline = time.monotonic() + seconds
    while not ready():
        if not guest.alive():
            raise RunFailed(f"The guest of {guest.name} ended while it booted: {guest.last_words()}")
        if time.monotonic() > deadline:
            raise RunFailed(
                f"The guest of {guest.name} did not answer over SSH within {seconds:g} s: {guest.last_words()}"
            )
        time.sleep(0.5)

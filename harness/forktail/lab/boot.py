# SPDX-License-Identifier: Apache-2.0
"""From a kernel to a guest that is ready: started, answering over SSH, of the right release, fitted out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from forktail.errors import BadInput, RunFailed
from forktail.lab import registry
from forktail.lab.accelerator import accelerator_for, emulator_version, emulator_warning
from forktail.lab.cache import locked
from forktail.lab.guest import Guest, start_guest, wait_for_guest
from forktail.lab.image import Image, find_or_build
from forktail.lab.kernel import LabKernel
from forktail.lab.machine import Machine, accelerator_name, check_host_memory
from forktail.lab.outfit import fit_out
from forktail.lab.programs import find_program
from forktail.lab.recipe import recipe
from forktail.lab.remote import release_in
from forktail.lab.turns import shorten_turns

_BOOTED_WITHIN_S = 120.0
"""For one guest: 20 s on two idle cores, and every further guest that boots beside it takes its share of them."""

Tell = Callable[[str], None]
"""Told in a sentence what is going on, where that takes its time."""


@dataclass(frozen=True)
class Ground:
    """What every guest is started from."""

    image: Image
    accelerator: str


def prepare(kernel: LabKernel, machine: Machine, tell: Tell) -> Ground:
    """The image, made if need be, and the accelerator; EnvironmentLacks where a program is missing."""
    for program in ("qemu-system-x86_64", "ssh"):
        find_program(program)
    image = find_or_build(recipe(), lambda: tell("Making the guest image, once: about a minute ..."))
    accelerator = accelerator_for(machine, kernel.image)
    warning = emulator_warning(accelerator, machine, emulator_version())
    if warning:
        tell(warning)
    return Ground(image, accelerator)


def wait_until_up(guest: Guest, guests: int = 1) -> None:
    """Wait for SSH to answer, and shorten the turns of CPUs that take turns.

    Raises RunFailed where the guest does not answer, or another release than the kernel's does.
    """
    releases: list[str] = []

    def answers() -> bool:
        release = release_in(guest)
        if release is not None:
            releases.append(release)
        return release is not None

    wait_for_guest(guest, answers, _BOOTED_WITHIN_S * guests)
    if releases[0] != guest.kernel.release:
        raise RunFailed(f"The guest of {guest.name} runs {releases[0]}, but was given {guest.kernel.release}.")
    if guest.machine.takes_turns:
        shorten_turns(guest)


def _make_ready(guest: Guest, guests: int) -> None:
    wait_until_up(guest, guests)
    fit_out(guest)


@contextmanager
def guest_for_one_command(
    kernel: LabKernel, machine: Machine, tell: Tell, on_start: Callable[[Guest], object] = lambda _: None
) -> Iterator[Guest]:
    """A guest that ends with the context, and with the thread that entered it however that ends.

    `on_start` is given the guest as soon as its process is there, before it has booted.
    """
    check_host_memory([machine], registry.promised_bytes())
    ground = prepare(kernel, machine, tell)
    with ExitStack() as stack:

        def started(guest: Guest) -> None:
            stack.callback(guest.end)
            on_start(guest)

        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="forktail-lab-"))
        tell(f"Booting {kernel.release} ({accelerator_name(ground.accelerator, machine)}) ...")
        guest = start_guest(
            kernel,
            machine,
            ground.accelerator,
            ground.image,
            Path(directory) / "console",
            dies_with_us=True,
            on_start=started,
        )
        _make_ready(guest, guests=1)
        yield guest


def _wanted(kernels: Sequence[LabKernel], machine: Machine) -> list[LabKernel]:
    """Those kernels whose guests are not up yet; BadInput where one is up as another machine."""
    up = registry.living()
    missing = []
    for kernel in kernels:
        entry = up.get(kernel.flavour)
        if entry is None:
            missing.append(kernel)
        elif not entry.ready or entry.guest.machine != machine or entry.guest.kernel != kernel:
            state = "of another machine or kernel" if entry.ready else "still booting"
            raise BadInput(
                f"A guest of {kernel.flavour} is up, {state}: end it first by `forktail lab down {kernel.flavour}`."
            )
    return missing


def bring_up(kernels: Sequence[LabKernel], machine: Machine, tell: Tell) -> list[Guest]:
    """Boot a guest of each kernel that has none yet, all at once; they stay until `lab down`.

    When one fails, or the wait is interrupted, none of those that were started stays.
    """
    with ExitStack() as failing:

        def keep_account(guest: Guest) -> None:
            failing.callback(take_down, guest)
            registry.record(guest, ready=False)

        with locked(registry.lock_path()):
            missing = _wanted(kernels, machine)
            check_host_memory([machine for _ in missing], registry.promised_bytes())
            ground = prepare(missing[0], machine, tell) if missing else None
            started = []
            for kernel in missing:
                assert ground is not None
                guest = start_guest(
                    kernel,
                    machine,
                    ground.accelerator,
                    ground.image,
                    registry.console_path(kernel.flavour),
                    dies_with_us=False,
                    on_start=keep_account,
                )
                started.append(guest)
                tell(f"Booting {kernel.release} ({accelerator_name(ground.accelerator, machine)}) ...")
        for guest in started:
            _make_ready(guest, len(started))
            registry.record(guest, ready=True)
        failing.pop_all()
    up = registry.living()
    return [up[kernel.flavour].guest for kernel in kernels if kernel.flavour in up]


def take_down(guest: Guest) -> None:
    """End a guest of `lab up`."""
    guest.end()
    registry.forget(guest)

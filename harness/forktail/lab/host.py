# SPDX-License-Identifier: Apache-2.0
"""A lab host: a guest with a name and a disk of its own, whose kernel is changed by booting it with another one.

Its record outlives its guest: a kernel that panics leaves a host that is off, and can be booted again.
"""

from __future__ import annotations

import re
import secrets
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from forktail import rundir
from forktail.errors import BadInput, RunFailed
from forktail.kernel.series import FLAVOURS
from forktail.lab import registry
from forktail.lab.boot import Tell, prepare, wait_until_up
from forktail.lab.cache import guests_directory, lab_cache, locked
from forktail.lab.guest import Guest, Seat, start_guest, start_ticks
from forktail.lab.image import Image
from forktail.lab.kernel import LabKernel, build_of
from forktail.lab.machine import Machine, accelerator_name, check_host_memory
from forktail.lab.network import Place, next_place
from forktail.lab.outfit import fit_out
from forktail.lab.remote import tell as tell_guest
from forktail.measure.server import free_port

_SCHEMA = "forktail.lab-host/2"
_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
_DOES_WITHIN_S = 30.0


@dataclass(frozen=True)
class Owner:
    """The process that a host ends with; one that comes later by the same pid is another."""

    pid: int
    start_ticks: int

    def alive(self) -> bool:
        """Whether the very process is still there."""
        return start_ticks(self.pid) == self.start_ticks


@dataclass(frozen=True)
class LabHost:
    """A host as it was asked for; which kernel it runs now, if any, its guest tells."""

    name: str
    stock: LabKernel
    """The kernel that it is to come back to."""
    machine: Machine
    accelerator: str
    image: Image
    disk: Path
    port: int
    place: Place
    """Where other hosts of the lab reach it."""
    owner: Owner | None
    """None where it stays until `forktail lab down`."""

    def guest(self) -> registry.Entry | None:
        """What it runs now; None while it is off."""
        return registry.living().get(self.name)

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": _SCHEMA,
            "name": self.name,
            "stock": kernel_json(self.stock),
            "machine": vars(self.machine),
            "accelerator": self.accelerator,
            "image": str(self.image.directory),
            "disk": str(self.disk),
            "port": self.port,
            "place": self.place.number,
            "owner": vars(self.owner) if self.owner else None,
        }


def kernel_json(kernel: LabKernel) -> dict[str, str]:
    """A kernel as records and commands tell it; `build` is what `uname -v` begins with."""
    build = build_of(kernel.image)
    return {"flavour": kernel.flavour, "release": kernel.release, "image": str(kernel.image), "build": build}


def _path(name: str) -> Path:
    return guests_directory() / "hosts" / f"{name}.json"


def _read(path: Path) -> LabHost:
    document = rundir.read_json(path, _SCHEMA)
    stock = document["stock"]
    return LabHost(
        name=document["name"],
        stock=LabKernel(stock["flavour"], stock["release"], Path(stock["image"])),
        machine=Machine(**document["machine"]),
        accelerator=document["accelerator"],
        image=Image(Path(document["image"])),
        disk=Path(document["disk"]),
        port=document["port"],
        place=Place(document["place"]),
        owner=Owner(**document["owner"]) if document["owner"] else None,
    )


def record_host(host: LabHost) -> None:
    """Write the host's file, or write it anew."""
    _path(host.name).parent.mkdir(exist_ok=True)
    rundir.write_json(_path(host.name), host.as_json())


def failed_console(name: str) -> Path:
    """Where the console of the last boot that failed is kept, until the host is gone."""
    return guests_directory() / "hosts" / f"{name}.failed-console"


def hosts() -> dict[str, LabHost]:
    """The hosts that there are, by name, up or off; one whose disk is gone, as after a reboot, is cleared away."""
    found = {}
    for path in sorted(_path("any").parent.glob("*.json")):
        host = _read(path)
        if host.disk.exists():
            found[host.name] = host
        else:
            path.unlink(missing_ok=True)
    return found


def find_host(name: str) -> LabHost:
    """The host of this name; BadInput where there is none."""
    host = hosts().get(name)
    if host is None:
        raise BadInput(f"There is no lab host {name}: `forktail lab up --name {name}`, or see `forktail lab status`.")
    return host


def owner_of(pid: int) -> Owner:
    """The living process of this pid; BadInput where there is none."""
    ticks = start_ticks(pid)
    if ticks is None:
        raise BadInput(f"--owner {pid} is no living process: give the pid of the command that the host is for.")
    return Owner(pid, ticks)


def _new_disk(name: str, image: Image) -> Path:
    """A sparse copy of the image's disk."""
    directory = lab_cache() / "disks"
    directory.mkdir(exist_ok=True)
    disk = directory / f"{name}-{secrets.token_hex(4)}.img"
    try:
        subprocess.run(
            ["cp", "--sparse=always", "--reflink=auto", image.disk, disk],  # noqa: S607
            check=True,
            capture_output=True,
            text=True,
        )
    except subprocess.CalledProcessError as error:
        disk.unlink(missing_ok=True)
        raise RunFailed(f"The disk of {name} could not be made: {error.stderr.strip()}") from error
    return disk


def raise_host(
    name: str,
    stock: LabKernel,
    machine: Machine,
    owner: Owner | None,
    keep_watch: Callable[[LabHost], object],
    tell: Tell,
) -> LabHost:
    """Make a host and boot it with its stock kernel, or fit out anew the one that is up already.

    `keep_watch` is called before anything is booted, to see to it that a host ends with its owner. A host that could
    not be brought up leaves nothing behind; one that was up without an owner stays without.
    """
    if not _NAME.fullmatch(name) or name in FLAVOURS:
        raise BadInput(
            f"{name!r} is no name for a lab host: take lower-case letters, digits and hyphens, as in lab1, "
            "and no kernel's name."
        )
    with locked(registry.lock_path()):
        host = hosts().get(name)
        if host is not None and (host.stock != stock or host.machine != machine):
            raise BadInput(
                f"{name} is there already, with another stock kernel or machine: end it first by "
                f"`forktail lab down {name}`."
            )
        new = host is None
        if host is None:
            check_host_memory([machine], registry.promised_bytes())
            ground = prepare(stock, machine, tell)
            disk = _new_disk(name, ground.image)
            place = next_place(other.place for other in hosts().values())
            host = LabHost(name, stock, machine, ground.accelerator, ground.image, disk, free_port(), place, owner)
        elif host.owner and host.owner != owner:
            if host.owner.alive():
                raise BadInput(
                    f"{name} is up for process {host.owner.pid}, which is still at work: wait for its end, or take "
                    "another name."
                )
            host = replace(host, owner=owner)
        record_host(host)
    try:
        keep_watch(host)
        entry = host.guest()
        guest = entry.guest if entry and entry.ready else boot_host(host, stock, "", tell)
        fit_out(guest)
    except BaseException:
        if new:
            end_host(host)
        raise
    return find_host(name)


def boot_host(host: LabHost, kernel: LabKernel, arguments: str, tell: Tell) -> Guest:
    """Shut the host down if it is up, and boot it with `kernel`, which is given further `arguments`.

    When the kernel does not come up the host is off: RunFailed with the last words of its console.
    """
    _shut_down(host)
    with locked(registry.lock_path()):
        check_host_memory([host.machine], registry.promised_bytes())
        tell(f"Booting {host.name}: {kernel.release} ({accelerator_name(host.accelerator, host.machine)}) ...")
        guest = start_guest(
            kernel,
            host.machine,
            host.accelerator,
            host.image,
            registry.console_path(host.name),
            dies_with_us=False,
            on_start=lambda started: registry.record(started, ready=False),
            seat=Seat(host.name, host.disk, host.port, arguments, host.place.qemu_options(guests_directory())),
        )
        if guest.port != host.port:
            record_host(replace(host, port=guest.port))
    try:
        wait_until_up(guest)
        tell_guest(guest, host.place.command, b"", _DOES_WITHIN_S)
        if host.owner and not host.owner.alive():
            raise RunFailed(f"Whoever {host.name} was booted for is gone.")
    except BaseException:
        with suppress(OSError):
            shutil.copyfile(guest.console, failed_console(host.name))
        _end_guest(guest)
        raise
    registry.record(guest, ready=True)
    return guest


def _shut_down(host: LabHost) -> None:
    """End the host's guest, what it wrote being on its disk; a guest that does not answer loses what it had not."""
    entry = host.guest()
    if entry is None:
        return
    with suppress(RunFailed):
        # Remounted read-only: all that systemd's minute of stopping units would add is their last log lines.
        tell_guest(entry.guest, "sync; echo u > /proc/sysrq-trigger", b"", _DOES_WITHIN_S)
    _end_guest(entry.guest)


def _end_guest(guest: Guest) -> None:
    guest.end()
    registry.forget(guest)


def end_host(host: LabHost) -> None:
    """End a host: its guest, its disk, its record."""
    with locked(registry.lock_path()):
        entry = host.guest()
        if entry:
            _end_guest(entry.guest)
        host.disk.unlink(missing_ok=True)
        failed_console(host.name).unlink(missing_ok=True)
        _path(host.name).unlink(missing_ok=True)

# SPDX-License-Identifier: Apache-2.0
"""The guests of `lab up`, one file each; a file whose process is gone is stale and is cleared away."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from forktail import rundir
from forktail.errors import BadInput
from forktail.lab.cache import guests_directory
from forktail.lab.guest import Guest
from forktail.lab.image import Image
from forktail.lab.kernel import LabKernel
from forktail.lab.machine import Machine

_SCHEMA = "forktail.guest/1"


@dataclass(frozen=True)
class Entry:
    """A guest of `lab up`; it is not `ready` while it boots."""

    guest: Guest
    ready: bool

    def as_json(self) -> dict[str, Any]:
        guest = self.guest
        return {
            "schema": _SCHEMA,
            "name": guest.name,
            "flavour": guest.kernel.flavour,
            "release": guest.kernel.release,
            "kernel": str(guest.kernel.image),
            "machine": asdict(guest.machine),
            "accelerator": guest.accelerator,
            "image": str(guest.image.directory),
            "pid": guest.pid,
            "start_ticks": guest.start_ticks,
            "port": guest.port,
            "console": str(guest.console),
            "ready": self.ready,
        }


def _path(name: str) -> Path:
    return guests_directory() / f"{name}.json"


def lock_path() -> Path:
    """Held while guests are looked up and started, so that two commands never start the same one."""
    return guests_directory() / "lock"


def run_lock_path(name: str) -> Path:
    """Held while a guest is at work on a run: a second run would spoil the first."""
    return guests_directory() / f"{name}.lock"


def console_path(name: str) -> Path:
    """Where the console of the guest of `lab up` is written."""
    return guests_directory() / f"{name}.console"


def record(guest: Guest, ready: bool) -> None:
    """Write the guest's file, or write it anew."""
    rundir.write_json(_path(guest.name), Entry(guest, ready).as_json())


def forget(guest: Guest) -> None:
    """Drop the guest's file and console."""
    _path(guest.name).unlink(missing_ok=True)
    guest.console.unlink(missing_ok=True)


def _read(path: Path) -> Entry:
    document = rundir.read_json(path, _SCHEMA)
    try:
        return _entry(document)
    except (BadInput, KeyError, TypeError) as error:
        raise BadInput(
            f"{path} tells of a guest, process {document.get('pid')}, as another version of forktail does: "
            "let that one's `lab down` end it, or end the process and delete the file."
        ) from error


def _entry(document: dict[str, Any]) -> Entry:
    guest = Guest(
        name=document["name"],
        kernel=LabKernel(document["flavour"], document["release"], Path(document["kernel"])),
        machine=Machine(**document["machine"]),
        accelerator=document["accelerator"],
        image=Image(Path(document["image"])),
        pid=document["pid"],
        start_ticks=document["start_ticks"],
        port=document["port"],
        console=Path(document["console"]),
    )
    return Entry(guest, document["ready"])


def living() -> dict[str, Entry]:
    """The guests that live, by name; the files of those that died are cleared away."""
    entries = {}
    for path in sorted(guests_directory().glob("*.json")):
        entry = _read(path)
        if entry.guest.alive():
            entries[entry.guest.name] = entry
        else:
            forget(entry.guest)
    return entries


def promised_bytes() -> int:
    """What the living guests may yet take of the host's memory."""
    return sum(entry.guest.untouched_bytes() for entry in living().values())

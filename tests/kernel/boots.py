# SPDX-License-Identifier: Apache-2.0
"""Each kernel, booted once in each mode of its fork(): guests side by side, and no program again that has passed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from threading import Event

from tests.kernel.guest import Boot, Program, boot

Kernel = tuple[str, str]
"""A flavour, and a mode of its fork()."""

_LONG = {"held", "snapshot", "staleness", "storm", "upkeep"}
"""Programs that take most of the time: where results are kept, each has a guest of its own, so that less is lost."""


class Kept:
    """What programs reported on a kernel in a mode, in a directory, so that hours of testing can be interrupted.

    Of a guest that came to its end, and whose kernel had nothing to complain of, the programs that passed are kept, as
    long as the kernel and they are the same.
    """

    def __init__(self, directory: Path, kernel: Kernel, image: Path, initramfs: Path) -> None:
        root = initramfs.parent / "root"
        # What every program runs with is a part of it.
        common = [image, root / "init", root / "bin/busybox"]
        place = directory / "-".join(kernel)
        self._files = {path.name: place / f"{path.name}-{digest_of([path, *common])}.json"
                       for path in sorted((root / "tests").iterdir())}  # fmt: skip

    def read(self) -> dict[str, Program]:
        """By name."""
        found = {name: file for name, file in self._files.items() if file.exists()}
        return {name: Program(**json.loads(file.read_text())) for name, file in found.items()}

    def write(self, made: Boot) -> None:
        """Keep what there is to be kept of a boot."""
        if not made.ended or made.complaints:
            return
        for (name, _), program in made.programs.items():
            if name in self._files and program.passed:
                self._files[name].parent.mkdir(parents=True, exist_ok=True)
                self._files[name].write_text(json.dumps(asdict(program)))

    @property
    def programs(self) -> list[str]:
        """The names of all."""
        return list(self._files)


class Boots:
    """Guests that run every program of `initramfs`, each with its own directory under `directory`.

    With `kept`, a directory, they run those alone that are not kept there. `arguments` are for the kernel and its
    /init.
    """

    def __init__(
        self,
        images: dict[Kernel, Path],
        initramfs: Path,
        directory: Path,
        seconds: float,
        arguments: str,
        cpus: int,
        at_once: int,
        kept: Path | None,
    ) -> None:
        self._initramfs = initramfs
        self._directory = directory
        self._seconds = seconds
        self._arguments = arguments
        self._cpus = cpus
        self._kept = kept
        self._stop = Event()
        self._pool = ThreadPoolExecutor(at_once)
        self._made: dict[Kernel, Future[Boot]] = {
            kernel: self._pool.submit(self._boot, kernel, image) for kernel, image in images.items()
        }

    def of(self, kernel: Kernel) -> Boot:
        """What the guest of a kernel wrote; waits until it has come to its end."""
        return self._made[kernel].result()

    def ended(self) -> dict[Kernel, Boot]:
        """Those that have been made."""
        return {kernel: made.result() for kernel, made in self._made.items() if made.done() and not made.exception()}

    def close(self) -> None:
        """Begin no more of them, and end those under way."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def _boot(self, kernel: Kernel, image: Path) -> Boot:
        flavour, mode = kernel
        arguments = f"{self._arguments} modes={mode}"
        kept = Kept(self._kept, kernel, image, self._initramfs) if self._kept else None
        directory = self._directory / f"{flavour}-{mode}"
        directory.mkdir()
        if not kept:
            return self._run(image, directory, arguments)
        known = kept.read()
        made = Boot("", kept={(name, mode): program for name, program in known.items()})
        for part in parts([name for name in kept.programs if name not in known]):
            only = f"{arguments} only={','.join(part)}"
            # The console of each stays, for the trace of a complaint is nowhere else.
            place = directory / part[0]
            place.mkdir()
            guest = self._run(image, place, only)
            kept.write(guest)
            made = replace(guest, before=made)
            if self._stop.is_set():
                break
        return made

    def _run(self, image: Path, directory: Path, arguments: str) -> Boot:
        return boot(image, self._initramfs, directory, self._seconds, arguments, cpus=self._cpus, stop=self._stop)


def parts(programs: list[str]) -> list[list[str]]:
    """The programs, guest by guest: the short ones together, and each long one alone."""
    short = [name for name in programs if name not in _LONG]
    return [short] * bool(short) + [[name] for name in programs if name in _LONG]


def digest_of(files: Iterable[Path]) -> str:
    """Twelve hexadecimal digits that tell these files' contents from others."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]

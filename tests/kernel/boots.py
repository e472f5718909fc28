# SPDX-License-Identifier: Apache-2.0
"""Each kernel, booted once in each mode of its fork(): guests side by side, and none again that came to a clean end."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from threading import Event

from tests.kernel.guest import Boot, boot

Kernel = tuple[str, str]
"""A flavour, and a mode of its fork()."""


class Boots:
    """Guests that run every program of `initramfs`, each with its own directory under `directory`.

    With `kept`, a directory, what a guest wrote that came to its end without a failure is read from there as long as
    the kernel and the programs are the same, so that hours of testing can be interrupted.
    """

    def __init__(
        self,
        images: dict[Kernel, Path],
        initramfs: Path,
        directory: Path,
        seconds: float,
        program_seconds: int,
        at_once: int,
        kept: Path | None,
    ) -> None:
        self._initramfs = initramfs
        self._directory = directory
        self._seconds = seconds
        self._program_seconds = program_seconds
        self._kept = kept
        self._stop = Event()
        self._pool = ThreadPoolExecutor(at_once)
        # The programs as they were built, not their archive: that has the times of its files in it.
        self._programs = digest_of(sorted(path for path in (initramfs.parent / "root").rglob("*") if path.is_file()))
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
        kept = None
        if self._kept:
            self._kept.mkdir(parents=True, exist_ok=True)
            kept = self._kept / f"{flavour}-{mode}-{digest_of([image])}-{self._programs}.json"
            if kept.exists():
                return Boot(**json.loads(kept.read_text()))
        directory = self._directory / f"{flavour}-{mode}"
        directory.mkdir()
        arguments = f"modes={mode} seconds={self._program_seconds}"
        made = boot(image, self._initramfs, directory, self._seconds, arguments, stop=self._stop)
        if kept and made.is_clean:
            kept.write_text(json.dumps(asdict(made)))
        return made


def digest_of(files: Iterable[Path]) -> str:
    """Twelve hexadecimal digits that tell these files' contents from others."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]

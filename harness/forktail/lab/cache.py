# SPDX-License-Identifier: Apache-2.0
"""Where the lab keeps what outlives a command: images in the cache, guests at work in the runtime directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def lab_cache() -> Path:
    """The lab's part of the user's cache, made if need be."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    directory = Path(base) / "forktail" / "lab"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def guests_directory() -> Path:
    """Where the guests of `lab up` are recorded, made if need be."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    directory = Path(base) / "forktail-lab" if base else lab_cache() / "guests"
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of this name, waiting for it; a holder that dies gives it back."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

# SPDX-License-Identifier: Apache-2.0
"""The kernels that were built, kept by the digest of all that went into them."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forktail.kernel import key
from forktail.kernel.progress import Progress, Silence
from forktail.kernel.series import Series, read_series, with_checks
from forktail.kernel.source import present_source

SCHEMA = "forktail.kernel/1"
PACKAGE_SCHEMA = "forktail.kernel-package/1"
_MANIFEST = "manifest.json"
PARTIAL = ".partial"


@dataclass(frozen=True)
class Built:
    """Something in the cache: its directory, and the manifest that tells what it was made of."""

    directory: Path
    manifest: dict[str, Any]

    @property
    def config(self) -> Path:
        return self.directory / "config"

    @property
    def log(self) -> Path:
        return self.directory / "build.log"

    @property
    def release(self) -> str:
        """What `uname -r` says when it runs."""
        return str(self.manifest["release"])

    @property
    def bytes(self) -> int:
        return directory_bytes(self.directory)

    def _as_json(self, files: Mapping[str, Path]) -> dict[str, Any]:
        paths = {name: str(path) for name, path in {**files, "config": self.config, "log": self.log}.items()}
        return self.manifest | paths | {"bytes": self.bytes}


class BuiltKernel(Built):
    """A kernel in the cache."""

    @property
    def image(self) -> Path:
        return self.directory / "bzImage"

    @property
    def vmlinux(self) -> Path:
        """The image with its symbols, debugging information and BTF."""
        return self.directory / "vmlinux"

    @property
    def flavour(self) -> str:
        return str(self.manifest["flavour"])

    def as_json(self) -> dict[str, Any]:
        return self._as_json({"image": self.image, "vmlinux": self.vmlinux})


class BuiltPackage(Built):
    """A kernel's Debian package in the cache."""

    @property
    def deb(self) -> Path:
        return self.directory / str(self.manifest["package"])

    def as_json(self) -> dict[str, Any]:
        return self._as_json({"deb": self.deb})


def cache_directory() -> Path:
    """Where kernels are built and kept, under XDG_CACHE_HOME."""
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "forktail" / "kernels"


def directory_bytes(directory: Path) -> int:
    """What the files below a directory take on the disk."""
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))


def entry(flavour: str, checks: str | None, kernel_key: str) -> Path:
    """The directory of a kernel, there or not."""
    return cache_directory() / f"{with_checks(flavour, checks)}-{kernel_key[: key.SHORT]}"


def read_entry(directory: Path) -> BuiltKernel | None:
    """The kernel in a directory of the cache; None where it is not whole or of another version."""
    manifest = _read_manifest(directory, SCHEMA)
    return BuiltKernel(directory, manifest) if manifest else None


def read_package(directory: Path) -> BuiltPackage | None:
    """The package in a directory of the cache; None where it is not whole or of another version."""
    manifest = _read_manifest(directory, PACKAGE_SCHEMA)
    return BuiltPackage(directory, manifest) if manifest else None


def _read_manifest(directory: Path, schema: str) -> dict[str, Any] | None:
    try:
        manifest: dict[str, Any] = json.loads((directory / _MANIFEST).read_text())
    except (OSError, ValueError):
        return None
    return manifest if manifest.get("schema") == schema else None


def write_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    _write_manifest(directory, {"schema": SCHEMA} | manifest)


def write_package(directory: Path, manifest: dict[str, Any]) -> None:
    _write_manifest(directory, {"schema": PACKAGE_SCHEMA} | manifest)


def _write_manifest(directory: Path, manifest: dict[str, Any]) -> None:
    (directory / _MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def entries() -> list[BuiltKernel]:
    """Every kernel in the cache, the newest first."""
    found = [built for path in _directories() if (built := read_entry(path))]
    return sorted(found, key=lambda built: str(built.manifest["built"]), reverse=True)


def packages() -> list[BuiltPackage]:
    """Every package in the cache, the newest first."""
    found = [built for path in _directories() if (built := read_package(path))]
    return sorted(found, key=lambda built: str(built.manifest["built"]), reverse=True)


def _directories() -> list[Path]:
    return [path for path in cache_directory().glob("*-*") if path.suffix != PARTIAL]


def find(flavour: str, checks: str | None = None, series: Series | None = None) -> BuiltKernel | None:
    """The kernel of a flavour as the series is now, from Debian's source; None when it must be built first."""
    series = series or read_series()
    fragments = series.fragments(flavour, checks)
    source = present_source(series)
    if source is None:
        return None
    return read_entry(entry(flavour, checks, key.of(key.inputs(source, series, fragments, series.watched(checks)))))


@contextmanager
def locked(progress: Progress | None = None) -> Iterator[Path]:
    """The cache directory for one writer at a time, whichever process it is; others wait."""
    directory = cache_directory()
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            (progress or Silence()).begin("wait for another build")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield directory


def clean() -> int:
    """Remove every kernel and work tree; returns the bytes that this freed."""
    with locked() as directory:
        freed = directory_bytes(directory)
        for path in directory.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        return freed - directory_bytes(directory)

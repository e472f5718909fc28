# SPDX-License-Identifier: Apache-2.0
"""The base source of a kernel before any patch: Debian's tarball, another one, or a tree."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from forktail.errors import BadInput, EnvironmentLacks
from forktail.kernel.progress import Progress
from forktail.kernel.series import Series


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@dataclass(frozen=True)
class Source:
    """A tarball or a tree of a kernel."""

    path: Path

    @property
    def is_tree(self) -> bool:
        return self.path.is_dir()

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the tarball, or of every name and content in the tree."""
        if not self.is_tree:
            return digest(self.path)
        whole = hashlib.sha256()
        for directory, names, files in os.walk(self.path):
            names[:] = sorted(name for name in names if name != ".git")
            for name in sorted(files):
                path = Path(directory, name)
                content = path.readlink().as_posix() if path.is_symlink() else digest(path)
                whole.update(f"{path.relative_to(self.path)}\0{content}\0".encode(errors="surrogateescape"))
        return whole.hexdigest()

    @property
    def identity(self) -> str:
        """What its work tree is called: a tree stays the same one while its files change."""
        if self.is_tree:
            return f"tree-{hashlib.sha256(bytes(self.path)).hexdigest()[:12]}"
        return f"tarball-{self.digest[:12]}"


def install(package: str) -> bool:
    """Install a package of Debian where we may; whether that went well."""
    command = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", package]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        return False
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(command, capture_output=True, text=True, env=environment).returncode == 0


def present_source(series: Series, path: Path | None = None) -> Source | None:
    """The source as it is on this host, None if nothing is there yet."""
    path = path or series.tarball
    return Source(path.resolve()) if path.exists() else None


def find_source(series: Series, path: Path | None, progress: Progress) -> Source:
    """The source given, else Debian's, installed where it is missing."""
    if found := present_source(series, path):
        return found
    if path:
        raise BadInput(f"--source {path} does not exist: give a tarball or a tree of Linux {series.version}.")
    progress.begin(f"install {series.package}")
    if not (install(series.package) and series.tarball.exists()):
        raise EnvironmentLacks(
            f"There is no kernel source at {series.tarball}: apt-get install {series.package}, "
            f"or give a tarball or a tree of Linux {series.version} with --source."
        )
    return Source(series.tarball.resolve())

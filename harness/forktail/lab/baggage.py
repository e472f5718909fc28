# SPDX-License-Identifier: Apache-2.0
"""The programs of a workload that the guest image lacks, as this host has them: the guest is of the same Debian."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from forktail.lab.guest import Guest
from forktail.lab.remote import tell
from forktail.measure.engine import ENGINES, find_program
from forktail.measure.generator import find_generator
from forktail.workload import Workload

_IN_THE_IMAGE = ("redis-server", "redis-benchmark")
_ON_PATH = Path("/usr/local/bin")
_UNPACKED_WITHIN_S = 300
_carried: set[tuple[int, Path, int]] = set()
"""What this process has carried already: the guest's pid, the program and when it was written."""


def baggage(workload: Workload) -> dict[str, Path]:
    """What has to be carried into a guest: the program's key in the workload, and where it is on this host.

    Raises EnvironmentLacks or BadInput where this host has it not either.
    """
    server, load = workload.server, workload.load
    found = {}
    if server.path or ENGINES[server.engine].program not in _IN_THE_IMAGE:
        found["server"] = find_program(workload).path
    if load.path or (load.closed_loop and load.generator not in _IN_THE_IMAGE):
        generator = find_generator(workload)
        assert generator is not None
        found["load"] = generator.path
    return found


def carry(guest: Guest, workload: Workload) -> Workload:
    """Put the workload's baggage into the guest; returns the workload with the paths that hold there."""
    for section, path in baggage(workload).items():
        given = getattr(workload, section).path
        inside = path.absolute() if given else _ON_PATH / path.name
        if given:
            moved = getattr(workload, section).model_copy(update={"path": str(inside)})
            workload = workload.model_copy(update={section: moved})
        sign = (guest.pid, inside, path.stat().st_mtime_ns)
        if sign not in _carried:
            tell(guest, "tar -x --no-same-owner -C /", _tar([(inside, _stripped(path))]), _UNPACKED_WITHIN_S)
            libraries = [(library, library.read_bytes()) for library in _libraries(path)]
            # What the guest has of its own stays as it is.
            tell(guest, "tar -x --no-same-owner --skip-old-files -C /", _tar(libraries), _UNPACKED_WITHIN_S)
            _carried.add(sign)
    return workload


def _libraries(path: Path) -> list[Path]:
    """The shared libraries that a program is linked with; none of a script or a static program."""
    told = subprocess.run(["ldd", path], capture_output=True, text=True).stdout  # noqa: S607
    return [Path(found) for found in re.findall(r"=> (/\S+)", told)]


def _stripped(path: Path) -> bytes:
    """The program without what only a debugger needs, which is most of it, and slow to carry."""
    strip = shutil.which("strip")
    with tempfile.TemporaryDirectory(prefix="forktail-lab-") as directory:
        lean = Path(directory) / "lean"
        if strip and subprocess.run([strip, "-o", lean, path], capture_output=True).returncode == 0:
            return lean.read_bytes()
    return path.read_bytes()


def _tar(files: Iterable[tuple[Path, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in files:
            entry = tarfile.TarInfo(str(path).lstrip("/"))
            entry.size, entry.mode = len(content), 0o755
            tar.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()

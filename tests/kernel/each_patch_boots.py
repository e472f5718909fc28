# SPDX-License-Identifier: Apache-2.0
"""Whether the series boots after each of its patches: every flavour that there is by then, with fork() as it is.

    XDG_CACHE_HOME=DIRECTORY .venv/bin/python -m tests.kernel.each_patch_boots [NUMBER ...]

A number says after how many patches; without any it is all, which is hours. The last comes first, as the kernels of the
whole series are where the build tree is, and few patches change a header that every file includes. The kernels go to
the cache, some GiB of them: give it one that is not wanted afterwards. No mechanism is asked for, as most patches know
but a part of one; `make test-kernel` does that for the whole series.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.kernel.guest import boot

from forktail.kernel.build import build
from forktail.kernel.options import read_options
from forktail.kernel.progress import Silence
from forktail.kernel.series import Series, read_series

_HERE = Path(__file__).parent
_PROGRAMS = ("snapshot", "accounting")
_SECONDS = 900


def _first(series: Series, number: int, directory: Path) -> Series:
    """The series as it is after so many of its patches, in a directory."""
    shutil.copytree(series.directory, directory, ignore=shutil.ignore_patterns("patches"))
    (directory / "patches").mkdir()
    for patch in series.patches[:number]:
        shutil.copy(patch, directory / "patches")
    words = "\n".join(patch.read_text() for patch in series.patches[:number])
    for flavour in series.flavours:
        fragment = directory / f"{flavour}.config"
        wanted = [name.removeprefix("CONFIG_") for name, value in read_options(fragment) if value == "y"]
        if any(f"\n+config {option}\n" not in words for option in wanted):
            fragment.unlink()
    return read_series(directory)


def check(directory: Path, numbers: list[int]) -> None:
    """Build and boot; the programs' words and the kernel's complaints end it."""
    subprocess.run(["make", "-s", "-C", _HERE, f"BUILD={directory}/programs"], check=True)
    whole = read_series()
    for number in sorted(numbers or range(len(whole.patches) + 1), reverse=True):
        series = _first(whole, number, directory / f"series-{number}")
        for flavour in series.flavours:
            kernel = build(flavour, series=series, progress=Silence())
            initramfs = directory / "programs" / "initramfs.cpio"
            made = boot(kernel.image, initramfs, directory, _SECONDS, f"modes=0 only={','.join(_PROGRAMS)}")
            when = f"after {number} of {len(whole.patches)}: {flavour}"
            passed = [name for name in _PROGRAMS if (name, "0") in made.programs and made.programs[name, "0"].passed]
            if not made.ended or made.complaints or len(passed) < len(_PROGRAMS):
                sys.exit(f"{when} did not pass: {made.complaints or made.console[-4000:]}")
            points = sum(made.programs[name, "0"].points for name in passed)
            print(f"{when} booted as {made.kernel}, {points} points passed, no complaint", flush=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        check(Path(temporary), [int(number) for number in sys.argv[1:]])

# SPDX-License-Identifier: Apache-2.0
"""Each kernel that has been built, booted once in a guest that runs every program."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.kernel.guest import Boot, boot
from tests.kernel.report import write_report

from forktail.errors import BadInput
from forktail.kernel import cache as kernels

_HERE = Path(__file__).parent

# Set to 1, the kernels of `forktail kernel build all --debug` are tested.
_DEBUG = os.environ.get("FORKTAIL_KERNEL_DEBUG", "0") == "1"
# For a host that does other things besides; KASAN makes each program five times as long.
_BOOT_SECONDS = 10800 if _DEBUG else 2400
_PROGRAM_SECONDS = 3000 if _DEBUG else 600


@cache
def find_image(flavour: str) -> Path | None:
    """The image of a flavour: the one that FORKTAIL_KERNEL_<FLAVOUR> names, or the one in the cache of kernels."""
    if named := os.environ.get(f"FORKTAIL_KERNEL_{flavour.upper().replace('-', '_')}"):
        return Path(named)
    try:
        built = kernels.find(flavour, debug=_DEBUG)
    except BadInput:
        return None
    return built.image if built else None


@pytest.fixture(scope="session")
def initramfs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("guest")
    if not Path("/bin/busybox").exists() or not shutil.which("cpio"):
        pytest.skip("busybox-static or cpio is not installed")
    subprocess.run(["make", "-s", "-C", _HERE, f"BUILD={directory}"], check=True)
    return directory / "initramfs.cpio"


@pytest.fixture(scope="session")
def boots() -> Iterator[dict[str, Boot]]:
    """The boots so far, by flavour; see `booted`. In the end they go to the file that FORKTAIL_KERNEL_REPORT names."""
    found: dict[str, Boot] = {}
    yield found
    if (path := os.environ.get("FORKTAIL_KERNEL_REPORT")) and found:
        Path(path).write_text(write_report(found, {flavour: find_image(flavour) for flavour in found}))


@pytest.fixture
def booted(flavour: str, initramfs: Path, boots: dict[str, Boot], tmp_path_factory: pytest.TempPathFactory) -> Boot:
    if not shutil.which("qemu-system-x86_64"):
        pytest.skip("qemu-system-x86_64 is not installed")
    if flavour not in boots:
        image = find_image(flavour)
        if image is None:
            pytest.skip(f"no {flavour} kernel is built: `forktail kernel build {flavour}{' --debug' * _DEBUG}`")
        boots[flavour] = boot(
            image,
            initramfs,
            tmp_path_factory.mktemp(flavour),
            _BOOT_SECONDS,
            f"seconds={_PROGRAM_SECONDS}",
        )
    return boots[flavour]

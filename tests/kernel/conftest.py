# SPDX-License-Identifier: Apache-2.0
"""Each kernel that has been built, booted once in each mode of its fork() in a guest that runs every program."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from tests.kernel.boots import Boots
from tests.kernel.guest import Boot
from tests.kernel.report import write_report

from forktail.errors import BadInput
from forktail.kernel import cache as kernels

_HERE = Path(__file__).parent

# `debug` or `races`: the kernels of `forktail kernel build all --debug` or `--races` are tested.
_CHECKS = os.environ.get("FORKTAIL_KERNEL_CHECKS") or None
# For a host that does other things besides; a check makes a program five to ten times as long.
_BOOT_SECONDS = 21600 if _CHECKS else 2400
_ARGUMENTS = f"seconds={9000 if _CHECKS else 600}"
_CPUS = 2
if _CHECKS == "races":
    # More CPUs that race, page tables as they are with PTI and huge pages, and an eye on every twentieth access. What
    # the kernel says waits for its log at the end, and so does not break into what a program says.
    _CPUS = 4
    _ARGUMENTS += " pti=on transparent_hugepage=always kcsan.skip_watch=20 loglevel=3 log_buf_len=16M"


@cache
def find_image(flavour: str) -> Path | None:
    """The image of a flavour: the one that FORKTAIL_KERNEL_<FLAVOUR> names, or the one in the cache of kernels."""
    if named := os.environ.get(f"FORKTAIL_KERNEL_{flavour.upper().replace('-', '_')}"):
        return Path(named)
    try:
        built = kernels.find(flavour, _CHECKS)
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
def boots(request: pytest.FixtureRequest, initramfs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boots]:
    """The boots that the chosen tests want. In the end they go to the page that FORKTAIL_KERNEL_REPORT names."""
    if not shutil.which("qemu-system-x86_64"):
        pytest.skip("qemu-system-x86_64 is not installed")
    items = [
        item for item in request.session.items if isinstance(item, pytest.Function) and "booted" in item.fixturenames
    ]
    wanted = [item.callspec.params for item in items]
    kernels = dict.fromkeys((str(params["flavour"]), str(params["mode"])) for params in wanted)
    images = {kernel: image for kernel in kernels if (image := find_image(kernel[0]))}
    made = Boots(
        images,
        initramfs,
        tmp_path_factory.mktemp("boots"),
        _BOOT_SECONDS,
        _ARGUMENTS,
        _CPUS,
        int(os.environ.get("FORKTAIL_KERNEL_GUESTS", "1")),
        Path(kept) if (kept := os.environ.get("FORKTAIL_KERNEL_KEPT")) else None,
    )
    yield made
    made.close()
    if (path := os.environ.get("FORKTAIL_KERNEL_REPORT")) and made.ended():
        by_flavour = {flavour: image for (flavour, _), image in images.items()}
        Path(path).write_text(write_report(made.ended(), by_flavour, _CHECKS or "debug"))


@pytest.fixture
def booted(flavour: str, mode: str, boots: Boots) -> Boot:
    if find_image(flavour) is None:
        pytest.skip(
            f"no {flavour} kernel is built: `forktail kernel build {flavour}{f' --{_CHECKS}' if _CHECKS else ''}`"
        )
    return boots.of((flavour, mode))

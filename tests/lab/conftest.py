# SPDX-License-Identifier: Apache-2.0
"""Kernels, made up or real, and `forktail` commands that keep their guests apart from the user's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.run.conftest import Command, start, tiny

from forktail.errors import ForktailError
from forktail.lab.kernel import built_kernels

__all__ = ["lab", "made_up_kernel", "real_kernel", "start", "tiny"]

Lab = Callable[..., Command]


@pytest.fixture
def lab(start: Callable[..., Command], tmp_path: Path) -> Lab:
    """Start `forktail lab ...` with a registry of guests of its own."""

    def begin(*arguments: str | Path, **environment: str) -> Command:
        return start("lab", *arguments, **({"XDG_RUNTIME_DIR": str(tmp_path / "runtime")} | environment))

    return begin


@pytest.fixture
def made_up_kernel(tmp_path: Path) -> Path:
    """The head of a bzImage, enough to be read and never to be booted."""
    head = bytearray(0x1000)
    head[0x202:0x206] = b"HdrS"
    head[0x20E:0x210] = (0x600).to_bytes(2, "little")
    release = b"6.1.192-forktail-odf (someone@somewhere) #1 SMP\0"
    head[0x800 : 0x800 + len(release)] = release
    path = tmp_path / "bzImage"
    path.write_bytes(head)
    return path


@pytest.fixture(scope="session")
def real_kernel() -> Path:
    """A kernel to boot: FORKTAIL_TEST_KERNEL, else the first that is built."""
    given = os.environ.get("FORKTAIL_TEST_KERNEL")
    if given:
        return Path(given)
    try:
        return built_kernels()[0].image
    except ForktailError as error:
        pytest.skip(f"No guest to boot: {error} (or set FORKTAIL_TEST_KERNEL to a bzImage)")

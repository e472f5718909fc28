# SPDX-License-Identifier: Apache-2.0
"""The programs, on each kernel and in each mode of its fork()."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kernel.guest import Boot

PROGRAMS = sorted(path.stem for path in (Path(__file__).parent / "programs").glob("*.c"))
KERNELS = [("default", "0"), ("odf", "0"), ("odf", "1")]


@pytest.mark.parametrize(("flavour", "mode"), KERNELS, ids=["default", "odf-off", "odf-on"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_program(booted: Boot, program: str, mode: str) -> None:
    result = booted.programs.get((program, mode))
    assert result, f"it did not begin: {booted.console[-3000:]}"
    assert not result.failures, "\n".join(result.lines)
    assert result.status == 0, f"it ended with status {result.status}: {result.lines[-20:]}"
    assert result.plan == result.points


@pytest.mark.parametrize("flavour", ["default", "odf"])
def test_kernel_does_not_complain(booted: Boot) -> None:
    assert ("dmesg", "-") in booted.programs, f"the guest did not come to its end: {booted.console[-3000:]}"
    assert not booted.complaints

# SPDX-License-Identifier: Apache-2.0
"""The programs, on each kernel and in each mode of its fork()."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kernel.guest import Boot

PROGRAMS = sorted(path.stem for path in (Path(__file__).parent / "programs").glob("*.c"))
MODES = {"default": ["0"], "odf": ["0", "1"], "async-fork": ["0", "1", "4"]}
"""Of each flavour: 0 is fork() as it is; else what is written to use_odf, or how many threads copy."""

KERNELS = [(flavour, mode) for flavour, modes in MODES.items() for mode in modes]


@pytest.mark.parametrize(("flavour", "mode"), KERNELS, ids=["-".join(kernel) for kernel in KERNELS])
@pytest.mark.parametrize("program", PROGRAMS)
def test_program(booted: Boot, program: str, mode: str) -> None:
    result = booted.programs.get((program, mode))
    assert result, f"it did not begin: {booted.console[-3000:]}"
    assert not result.failures, "\n".join(result.lines)
    assert result.status == 0, f"it ended with status {result.status}: {result.lines[-20:]}"
    assert result.plan == result.points


@pytest.mark.parametrize(("flavour", "mode"), KERNELS, ids=["-".join(kernel) for kernel in KERNELS])
def test_kernel_does_not_complain(booted: Boot) -> None:
    assert booted.ended, f"the guest did not come to its end: {booted.console[-3000:]}"
    assert not booted.complaints

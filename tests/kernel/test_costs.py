# SPDX-License-Identifier: Apache-2.0
"""What faults, forks and memory calls cost in instructions where nobody has asked for another fork(), by kernel; and
the threads' instructions that copy page tables after an asynchronous one. By `make costs`: 3 GiB, and ten minutes.

Guests count instructions, so a figure is nearly the same each time, whatever else the host does. What is found goes to
the file that FORKTAIL_COSTS names.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.kernel.conftest import find_image
from tests.kernel.guest import Boot, boot

_REPORT = os.environ.get("FORKTAIL_COSTS")
_BOUND = 0.01
_BOUND_WHERE_OTHERS_USE_IT = 0.02
"""Once a cgroup has asked for it, the hooks of all processes look at their mm, which costs 3 instructions a fault."""
_PROMISED = ("first-", "write-", "fork-", "exit-")
"""Faults and forks, which a boot changes by 0.1 %; mremap by 1 %."""
_SECONDS = 3600

pytestmark = pytest.mark.skipif(not _REPORT, reason="it takes ten minutes: `make costs`")

Costs = dict[str, float]


def _boot(flavour: str, initramfs: Path, directory: Path, arguments: str, memory: str = "2G") -> Boot:
    image = find_image(flavour)
    if image is None:
        pytest.skip(f"no {flavour} kernel is built: `forktail kernel build {flavour}`")
    return boot(image, initramfs, directory, _SECONDS, f"seconds={_SECONDS} {arguments}", icount=True, memory=memory)


def _costs(booted: Boot, mode: str) -> Costs:
    program = booted.programs["cost", mode]
    assert program.status == 0, program.lines
    found = (re.match(r"# cost (\S+) (\S+)$", line) for line in program.lines)
    return {match[1]: float(match[2]) for match in found if match}


def _write(lines: list[str]) -> None:
    assert _REPORT
    with Path(_REPORT).open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


@pytest.fixture(scope="module")
def default(initramfs: Path, tmp_path_factory: pytest.TempPathFactory) -> Costs:
    return _costs(_boot("default", initramfs, tmp_path_factory.mktemp("default"), "only=cost"), "0")


@pytest.mark.parametrize(
    ("flavour", "modes", "bound"),
    [
        ("async-fork", "0", _BOUND),
        ("async-fork", "1,0", _BOUND_WHERE_OTHERS_USE_IT),
        # No promise is made of it; its figures are written down.
        ("odf", "0", None),
    ],
    ids=["async-fork-off", "async-fork-off-here", "odf-off"],
)
def test_no_cost_where_it_is_off(
    flavour: str, modes: str, bound: float | None, default: Costs, initramfs: Path, tmp_path: Path
) -> None:
    costs = _costs(_boot(flavour, initramfs, tmp_path, f"only=cost modes={modes}"), "0")
    assert costs.keys() == default.keys()
    ratios = {name: cost / default[name] - 1 for name, cost in costs.items()}
    _write(
        [f"{flavour}, modes {modes}; instructions on the default kernel and here:"]
        + [f"{name:18} {default[name]:12.1f} {costs[name]:12.1f} {ratios[name]:+8.2%}" for name in costs]
    )
    if bound is not None:
        promised = {name: ratio for name, ratio in ratios.items() if name.startswith(_PROMISED)}
        assert {name: f"{ratio:+.2%}" for name, ratio in promised.items() if ratio > bound} == {}


def test_threads_share_the_copying(initramfs: Path, tmp_path: Path) -> None:
    booted = _boot("async-fork", initramfs, tmp_path, "only=copying modes=0", memory="3G")
    program = booted.programs["copying", "0"]
    _write(program.lines)
    assert not program.failures
    assert program.status == 0, program.lines

# SPDX-License-Identifier: Apache-2.0
"""Flights as the probe pairs them. Only our kernels have the tracepoints; the programs for them run on any kernel, here
in real tasks that really fork."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.probe.conftest import FORK_UNMEASURED, INTERRUPTION, SOURCES, _build

FLIGHT = 9
FAULT = 2
TARGET = Path(__file__).parent / "targets" / "flights.c"

Events = list[tuple[int, int, int, int]]
Steps = dict[str, tuple[list[int], Events]]


@pytest.fixture(scope="module")
def steps(plain_probe: Path, bpf_works: None, tmp_path_factory: pytest.TempPathFactory) -> Steps:
    """What each step of the target emitted, with the pids that it had: the server's and its children's."""
    build = plain_probe.parent
    if not (build / "probe.skel.h").exists():
        build = _build(tmp_path_factory.mktemp("probe")).parent
    program = tmp_path_factory.mktemp("targets") / "flights"
    options: list[str | Path] = ["-O2", "-Wall", "-Wextra", "-Werror", "-I", SOURCES, "-isystem", build]
    subprocess.run(["cc", *options, TARGET, "-o", program, "-lbpf", "-lelf", "-lz"], check=True)
    ran = subprocess.run([program], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    found: Steps = {}
    for line in ran.stdout.splitlines():
        words = line.split()
        if words[0] == "step":
            events: Events = []
            found[words[1]] = ([int(word) for word in words[2:]], events)
        else:
            kind, context, aux, tgid = map(int, words)
            # The target loads no program that measures forks.
            if kind != FORK_UNMEASURED:
                events.append((kind, context, aux, tgid))
    return found


def _aux(copied: int, tables: int, aborted: bool = False) -> int:
    return int(aborted) | copied << 1 | tables << 32


def test_a_flight_that_is_over_within_fork_has_no_child(steps: Steps) -> None:
    (server, _), events = steps["within-fork"]
    assert events == [(FLIGHT, 0, _aux(320, 325), server)]


def test_a_flight_that_is_left_to_the_child_is_the_childs(steps: Steps) -> None:
    (_, child), events = steps["left-to-child"]
    assert events == [(FLIGHT, child, _aux(390, 400), child)]


def test_flights_that_overlap_end_with_their_own_beginnings(steps: Steps) -> None:
    (_, first, second), events = steps["overlapping"]
    assert events == [
        (FLIGHT, second, _aux(190, 200), second),
        (FLIGHT, first, _aux(12, 100, aborted=True), first),
    ]


def test_what_is_not_the_servers_own_is_not_told(steps: Steps) -> None:
    assert steps["not-its-own"][1] == []


def test_a_synchronization_is_told_with_its_reason_while_armed(steps: Steps) -> None:
    (server,), events = steps["synchronization"]
    assert events == [(INTERRUPTION, 0x200000, FAULT, server)]

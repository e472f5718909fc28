# SPDX-License-Identifier: Apache-2.0
"""A server that shares its only CPU with its snapshot's child, or one with the generator, is warned of."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.run.conftest import Start

from forktail.measure.placement import contention
from forktail.workload import Load, Server, Workload

MANY = {0, 1, 2, 3}


@pytest.mark.parametrize(
    ("server", "usable", "words"),
    [
        (Server(cpus="0"), MANY, "server.cpus = '0' is one CPU"),
        (Server(cpus="2-2"), MANY, "server.cpus = '2-2' is one CPU"),
        (Server(), {3}, "Affinity or cpuset leaves one CPU (3) to the server"),
        (Server(cpus="1", config={"bgsave_cpulist": "1"}), MANY, "server.cpus = '1' is one CPU"),
        (Server(config={"server_cpulist": "1", "bgsave_cpulist": "1"}), MANY, "server.config leaves one CPU (1)"),
    ],
)
def test_a_child_on_the_servers_only_cpu_is_warned_of(server: Server, usable: set[int], words: str) -> None:
    (sentence,) = contention(Workload(server=server), usable)
    assert words in sentence
    assert "the snapshot's child competes" in sentence


@pytest.mark.parametrize(
    ("server", "usable"),
    [
        (Server(), {0, 1}),
        (Server(cpus="0-1"), MANY),
        (Server(cpus="0,3"), MANY),
        (Server(cpus="0", config={"bgsave_cpulist": "1"}), MANY),
        (Server(cpus="0", config={"bgsave-cpulist": "1-3"}), MANY),
        (Server(cpus="0", config={"bgsave_cpulist": "0-7:2"}), MANY),
    ],
)
def test_two_cpus_are_no_contention(server: Server, usable: set[int]) -> None:
    assert contention(Workload(server=server), usable) == []


@pytest.mark.parametrize(
    ("cpus", "load", "words"),
    [
        ("0-1", Load(cpu=1), "load.cpu = 1 is a CPU of the server or its child, and leaves CPU 0 undisturbed"),
        ("", Load(cpu=3), "leaves CPU 0, 1, 2 undisturbed"),
        ("0-1", Load(cpu=2), None),
        ("0-1", Load(cpu=1, host="10.0.0.2"), None),
    ],
)
def test_a_generator_on_a_cpu_of_the_server_is_warned_of(cpus: str, load: Load, words: str | None) -> None:
    found = contention(Workload(server=Server(cpus=cpus), load=load), MANY)
    assert len(found) == (words is not None)
    assert words is None or words in found[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="eBPF probes need root")
@pytest.mark.parametrize("by", ["server.cpus", "affinity"])
def test_a_run_on_one_cpu_says_so(start: Start, tiny: Path, tmp_path: Path, by: str) -> None:
    cpu = min(os.sched_getaffinity(0))
    if by == "server.cpus":
        command = start("run", tiny, "--no-report", "--out", tmp_path / "out", "--set", f"server.cpus={cpu}")
        words = f"server.cpus = '{cpu}' is one CPU"
    else:
        command = start("run", tiny, "--no-report", "--out", tmp_path / "out", before=["taskset", "-c", str(cpu)])
        words = f"Affinity or cpuset leaves one CPU ({cpu}) to the server"
    code, _, errors = command.finish(120)
    assert code == 0, errors
    warnings = json.loads((tmp_path / "out" / "run.json").read_text())["warnings"]
    assert [warning for warning in warnings if words in warning], warnings

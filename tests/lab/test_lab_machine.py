# SPDX-License-Identifier: Apache-2.0
"""The machine of a guest: what cannot boot is refused in a sentence, and QEMU is told what was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forktail.errors import BadInput, EnvironmentLacks
from forktail.lab.machine import Machine, check_host_memory, qemu_command
from forktail.lab.run import check_memory
from forktail.workload import Workload

GIB = 2**30


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"memory_bytes": 100 * 2**20}, "A guest of 100MiB cannot boot"),
        ({"memory_bytes": GIB + 1}, "is not whole MiB"),
        ({"memory_bytes": GIB + 2**20, "numa_nodes": 2}, "is not whole MiB on each NUMA node"),
        ({"cpus": 0}, "--cpus 0 is not between 1 and"),
        ({"cpus": 2, "numa_nodes": 3}, "--numa-nodes 3 is not between 1 and --cpus 2"),
        ({"numa_nodes": 0}, "--numa-nodes 0 is not between"),
    ],
)
def test_what_cannot_boot_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput) as caught:
        Machine(**given)
    assert sentence in str(caught.value)


def test_more_memory_than_the_host_has() -> None:
    with pytest.raises(EnvironmentLacks, match=r"The guests want 1048576\.0 GiB of memory"):
        check_host_memory([Machine(memory_bytes=2**50)])


def test_a_guest_too_small_for_its_workload() -> None:
    workload = Workload.model_validate({"server": {"size": "2GiB"}})
    check_memory(workload, Machine(memory_bytes=8 * GIB))
    with pytest.raises(BadInput, match=r"server.size 2GiB needs a guest of 5\.\d GiB, and --memory is 4GiB"):
        check_memory(workload, Machine(memory_bytes=4 * GIB))


def test_numa_nodes_share_memory_and_cpus() -> None:
    command = qemu_command(Machine(4 * GIB, cpus=3, numa_nodes=2), "tcg", Path("k"), Path("d"), 1)
    assert [word for word in command if word.startswith("node,")] == [
        "node,nodeid=0,memdev=memory0,cpus=0,cpus=1",
        "node,nodeid=1,memdev=memory1,cpus=2",
    ]
    assert f"memory-backend-ram,id=memory1,size={2 * GIB}" in command


def test_the_port_is_on_the_loopback_alone_and_writes_are_thrown_away() -> None:
    command = " ".join(qemu_command(Machine(), "kvm", Path("k"), Path("a,b"), 4711))
    assert "hostfwd=tcp:127.0.0.1:4711-:22" in command
    assert "file=a,,b,if=none,id=disk,format=raw,cache=unsafe,snapshot=on" in command

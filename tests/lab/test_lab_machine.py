# SPDX-License-Identifier: Apache-2.0
"""The machine of a guest: what cannot boot is refused in a sentence, and QEMU is told what was asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from forktail.cli.lab import machine_for_run
from forktail.errors import BadInput, EnvironmentLacks
from forktail.lab.accelerator import emulator_version, emulator_warning
from forktail.lab.machine import Machine, check_host_memory, memory_short, qemu_command
from forktail.lab.run import check_fits
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
    check_fits(workload, Machine(memory_bytes=9 * GIB))
    with pytest.raises(BadInput, match=r"server.size 2GiB needs a guest of 8\.\d GiB, and --memory is 4GiB"):
        check_fits(workload, Machine(memory_bytes=4 * GIB))


def test_what_living_guests_may_yet_take_is_not_to_be_had() -> None:
    small = Machine(memory_bytes=GIB)
    assert memory_short([small]) == 0
    assert memory_short([small], promised=2**50) == pytest.approx(2**50, rel=0.01)
    with pytest.raises(EnvironmentLacks, match=r"The guests want 1\.0 GiB of memory, and 0\.0 GiB are available"):
        check_host_memory([small], promised=2**50)


@pytest.mark.parametrize(
    ("given", "machine", "sentence"),
    [
        ({"server": {"cpus": "0-2"}}, Machine(), "server.cpus names CPU 2, but the guest has 2 of them"),
        ({"load": {"cpu": 4}}, Machine(cpus=4), "load.cpu names CPU 4, but the guest has 4 of them"),
        (
            {"server": {"cpus": "0"}, "load": {"cpu": 1}},
            Machine(cpus=1, icount=True),
            "has CPU 0 alone: give --set load.cpu=-1 --set load.realtime=false, or --cpus.",
        ),
        ({"server": {"cpus": "zero"}}, Machine(), "server.cpus 'zero' is no CPU list"),
    ],
)
def test_a_workload_that_wants_cpus_that_the_guest_lacks(
    given: dict[str, Any], machine: Machine, sentence: str
) -> None:
    check_fits(Workload.model_validate({"server": {"cpus": "0"}, "load": {"cpu": 0}}), machine)
    with pytest.raises(BadInput) as caught:
        check_fits(Workload.model_validate(given), machine)
    assert sentence in str(caught.value)


def test_counting_instructions_takes_one_thread_of_tcg() -> None:
    command = qemu_command(Machine(cpus=1, icount=True), "tcg", Path("k"), Path("d"), 1)
    assert command[command.index("-icount") + 1] == "shift=0,sleep=off"
    assert "tcg,thread=single" in command
    assert command[command.index("-append") + 1].endswith(" nohz=off")
    assert "-icount" not in qemu_command(Machine(), "tcg", Path("k"), Path("d"), 1)


@pytest.mark.parametrize(
    ("machine", "turns"),
    [(Machine(cpus=4, icount=True), True), (Machine(cpus=1, icount=True), False), (Machine(cpus=4), False)],
)
def test_several_cpus_that_count_have_a_timer_to_take_turns_by(machine: Machine, turns: bool) -> None:
    assert machine.takes_turns == turns
    assert ("hpet=off" in qemu_command(machine, "tcg", Path("k"), Path("d"), 1)) == turns


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


@pytest.mark.parametrize(
    ("accelerator", "cpus", "version", "warned"),
    [
        ("tcg", 2, (7, 2), True),
        ("tcg", 2, (8, 0), True),
        ("tcg", 2, (8, 1), False),
        ("tcg", 2, (10, 0), False),
        ("tcg", 1, (7, 2), False),
        ("kvm", 2, (7, 2), False),
        ("tcg", 2, None, False),
    ],
)
def test_an_emulator_that_may_hang_the_guest_is_named(
    accelerator: Any, cpus: int, version: tuple[int, int] | None, warned: bool
) -> None:
    warning = emulator_warning(accelerator, Machine(cpus=cpus), version)
    assert (warning is not None and "QEMU 8.1" in warning) == warned


def test_the_emulator_tells_its_version() -> None:
    version = emulator_version()
    assert version is not None
    assert version >= (5, 0)


@pytest.mark.parametrize(
    ("text", "emulated", "options", "icount"),
    [
        ("[emulated]\nicount = true", True, {}, True),
        ("[emulated]\nicount = true", False, {}, False),
        ("[emulated]\nicount = true", True, {"icount": False}, False),
        ("[emulated]\nicount = true", True, {"cpus": 2}, False),
        ("", True, {}, False),
        ("", True, {"icount": True}, True),
    ],
)
def test_time_is_counted_where_the_workload_or_the_options_say_so(
    text: str, emulated: bool, options: dict[str, Any], icount: bool, tmp_path: Path
) -> None:
    workload = tmp_path / "some.toml"
    workload.write_text(text)
    given = {"memory": "1GiB", "cpus": None} | options
    machine = machine_for_run(workload, lambda _: emulated, **given)
    assert (machine.icount, machine.cpus) == (icount, 1 if icount else 2)
    assert machine.memory_bytes == GIB

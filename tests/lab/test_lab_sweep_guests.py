# SPDX-License-Identifier: Apache-2.0
"""The guests of a sweep: booted when they are due, kept, ended for want of memory, and gone when the sweep is."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.run.conftest import Start

from forktail.kernel import cache
from forktail.lab.kernel import find_kernel
from forktail.lab.machine import Machine
from forktail.lab.remote import release_in
from forktail.lab.sweep_guests import SweepGuests
from forktail.measure.proc import memory_bytes
from forktail.sweep.plan import plan_sweep

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the guest image is made by root")

MIB = 2**20
BOOT_AND_RUN_S = 400


def test_guests_stay_while_memory_lasts(real_kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two guests, each of more than half the memory that there is."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    kernel = find_kernel(str(real_kernel))
    kernels = {name: replace(kernel, flavour=name) for name in ("one", "two")}
    size = round(memory_bytes()["MemAvailable"] * 0.6) // MIB * MIB
    told: list[str] = []
    with SweepGuests(kernels, Machine(memory_bytes=size), told.append) as guests:
        one = guests.take("one")
        guests.give_back(one)
        assert guests.take("one") is one
        guests.give_back(one)
        two = guests.take("two")
        assert (one.guest.alive(), two.guest.alive()) == (False, True)
        assert sum("Ending the guest of one" in sentence for sentence in told) == 1
        two.guest.end()
        guests.give_back(two)
        last = guests.take("two")
        assert last is not two
    assert not last.guest.alive()


def test_a_run_whose_guest_hangs_is_made_in_another(
    real_kernel: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("forktail.lab.remote._CONNECT_S", 3)
    kernel = find_kernel(str(real_kernel))
    run = plan_sweep(tiny, ["load.rate=200"], ["default"]).runs[0]
    told: list[str] = []
    with SweepGuests({"default": kernel}, Machine(memory_bytes=1024 * MIB), told.append) as guests:
        held = guests.take("default")
        guests.give_back(held)
        hung = held.guest
        os.kill(hung.pid, signal.SIGSTOP)
        made = guests.measure(run, tmp_path / "run")
        assert not hung.alive()
    assert (made / "run.json").exists()
    assert sum("does not answer any more" in sentence for sentence in told) == 1


def test_a_guest_that_counts_instructions_rests_between_its_runs(
    real_kernel: Path, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    run = plan_sweep(tiny, ["load.rate=200", "load.cpu=-1", "server.cpus="], ["default"]).runs[0]
    machine = Machine(memory_bytes=1024 * MIB, cpus=1, icount=True)
    with SweepGuests({"default": find_kernel(str(real_kernel))}, machine, lambda _: None) as guests:
        assert (guests.measure(run, tmp_path / "run") / "run.json").exists()
        (held,) = guests._idle
        resting = held.guest
        stopped_within_s(resting.pid, 5)
        spent = cpu_ticks(resting.pid)
        time.sleep(1)
        assert cpu_ticks(resting.pid) == spent, "an idle guest takes a core of the host"
        awake = guests.take("default")
        assert awake is held
        assert release_in(awake.guest) is not None
        guests.give_back(awake)
    assert not resting.alive()


def test_guests_that_count_instructions_run_side_by_side(start: Start, tiny: Path, tmp_path: Path) -> None:
    """Two runs at a time begin in the order of the plan; an interrupt ends both guests, and the sweep is resumed."""
    if cache.find("default") is None:
        pytest.skip("not built yet: forktail kernel build default")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("the host has one CPU")
    out = tmp_path / "sweep"
    settings = ["--set", "load.rate=200", "--set", "load.cpu=-1", "--set", "server.cpus=", "--set", "sweep.repeat=2"]
    arguments = ["sweep", tiny, "--lab", "--kernel", "default", "--icount", "--memory", "1GiB", "--out", out, "--json"]
    environment = {"XDG_RUNTIME_DIR": str(tmp_path / "runtime")}
    command = start(*arguments, *settings, **environment)

    def under_way() -> set[str]:
        return {path.name for path in (out / "runs").glob("*.partial")}

    command.wait_for(lambda: len(under_way()) == 2, BOOT_AND_RUN_S)
    assert under_way() == {"default-r1.partial", "default-again-r1.partial"}
    command.process.send_signal(signal.SIGINT)
    code, _, errors = command.finish()
    assert code == 130, errors
    assert command.orphans() == {}

    code, output, errors = start(*arguments, *settings, **environment).finish(2 * BOOT_AND_RUN_S)
    assert code in (0, 1), errors
    assert [run["state"] for run in json.loads(output)["runs"]] == ["finished"] * 4
    assert command.orphans() == {}


def stopped_within_s(pid: int, seconds: float) -> None:
    """Wait until each thread of a process has met the signal that stops it: a running one does so a moment later."""
    deadline = time.monotonic() + seconds
    while any(stat_fields(task)[0] != "T" for task in Path(f"/proc/{pid}/task").iterdir()):
        assert time.monotonic() < deadline, "not stopped"
        time.sleep(0.01)


def cpu_ticks(pid: int) -> int:
    """What a process has had of the CPUs, in clock ticks."""
    fields = stat_fields(Path(f"/proc/{pid}"))
    return int(fields[11]) + int(fields[12])


def stat_fields(task: Path) -> list[str]:
    """What the kernel tells of a process or a thread, from its state on."""
    return (task / "stat").read_text().rpartition(")")[2].split()


def test_ctrl_c_in_a_sweep_leaves_no_guest_and_a_sweep_to_go_on_with(start: Start, tiny: Path, tmp_path: Path) -> None:
    if cache.find("default") is None:
        pytest.skip("not built yet: forktail kernel build default")
    out = tmp_path / "sweep"
    arguments = ["sweep", tiny, "--lab", "--kernel", "default", "--memory", "1GiB", "--out", out, "--json"]
    settings = ["--set", "sweep.repeat=1", "--set", "load.rate=500"]
    environment = {"XDG_RUNTIME_DIR": str(tmp_path / "runtime")}
    command = start(*arguments, *settings, **environment)
    first = out / "runs" / "default-r1" / "run.json"
    command.wait_for(first.exists, BOOT_AND_RUN_S)
    command.wait_for((out / "runs" / "default-again-r1.partial").exists, BOOT_AND_RUN_S)
    command.process.send_signal(signal.SIGINT)
    code, _, errors = command.finish()
    assert code == 130, errors
    assert command.orphans() == {}
    made = first.stat().st_mtime_ns

    code, output, errors = start(*arguments, *settings, **environment).finish(BOOT_AND_RUN_S)
    assert code in (0, 1), errors
    assert "1 of 2 runs are there already" in errors
    assert first.stat().st_mtime_ns == made
    assert [run["state"] for run in json.loads(output)["runs"]] == ["finished", "finished"]
    assert command.orphans() == {}

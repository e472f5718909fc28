# SPDX-License-Identifier: Apache-2.0
"""The registry of guests: one that died is noticed, and a process that took its pid is left in peace."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from forktail.errors import BadInput
from forktail.lab import registry
from forktail.lab.guest import Guest, start_ticks
from forktail.lab.image import Image
from forktail.lab.kernel import LabKernel
from forktail.lab.machine import Machine
from forktail.measure.server import free_port, port_is_free


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as sleeping:
        yield sleeping
        sleeping.kill()


@pytest.fixture
def guest(process: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guest:
    """A recorded guest, with a process that only sleeps in QEMU's place."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    ticks = start_ticks(process.pid)
    assert ticks is not None
    found = Guest(
        name="odf",
        kernel=LabKernel("odf", "6.1.192-forktail-odf", Path("/boot/bzImage")),
        machine=Machine(cpus=4, numa_nodes=2),
        accelerator="tcg",
        image=Image(tmp_path),
        pid=process.pid,
        start_ticks=ticks,
        port=4711,
        console=registry.console_path("odf"),
    )
    registry.record(found, ready=True)
    return found


def test_a_living_guest_reads_back_the_same(guest: Guest) -> None:
    assert registry.living() == {"odf": registry.Entry(guest, ready=True)}


def test_a_dead_guest_is_cleared_away(guest: Guest, process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    process.kill()
    process.wait()
    assert not guest.alive()
    assert registry.living() == {}
    assert not list(tmp_path.rglob("*.json"))


def test_a_dead_guest_that_nobody_reaped_is_dead(guest: Guest, process: subprocess.Popen[bytes]) -> None:
    process.kill()
    guest.end()
    assert not guest.alive()


def test_another_process_of_the_same_pid_is_no_guest(guest: Guest, process: subprocess.Popen[bytes]) -> None:
    earlier = replace(guest, start_ticks=guest.start_ticks - 1)
    registry.record(earlier, ready=True)
    assert registry.living() == {}
    earlier.end()
    assert process.poll() is None


def test_a_guest_is_ended(guest: Guest, process: subprocess.Popen[bytes]) -> None:
    guest.end()
    assert process.wait(1) != 0


@pytest.mark.parametrize(
    "other",
    [{"machine": {"cpus": 2, "sockets": 1}}, {"machine": {"cpus": 2, "numa_nodes": 4}}, {"machine": None}],
)
def test_what_another_version_wrote_is_told_and_left(other: dict[str, object], guest: Guest, tmp_path: Path) -> None:
    (record,) = tmp_path.rglob("odf.json")
    record.write_text(json.dumps(json.loads(record.read_text()) | other))
    with pytest.raises(BadInput, match=f"odf.json tells of a guest, process {guest.pid}, as another version"):
        registry.living()
    assert record.exists()
    assert guest.alive()


def test_a_free_port_is_free() -> None:
    assert port_is_free(free_port())

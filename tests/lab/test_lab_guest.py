# SPDX-License-Identifier: Apache-2.0
"""Real guests: booted, measured in, and gone, whatever happened to the command that started them."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from tests.lab.conftest import Lab

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the guest image is made by root")

BOOT_AND_RUN_S = 400
"""The image is made on the way, if it is not there yet."""


def test_up_measures_and_down(lab: Lab, real_kernel: Path, tiny: Path, tmp_path: Path) -> None:
    """One guest for everything that can be done with a guest that is up."""
    up = lab("up", "--kernel", real_kernel, "--memory", "2GiB")
    code, _, errors = up.finish(BOOT_AND_RUN_S)
    assert code == 0, errors
    (guest,) = json.loads(lab("status", "--json").finish()[1])["guests"]
    flavour, release = guest["flavour"], guest["release"]
    assert guest["ready"]
    assert lab("ssh", flavour, "--", "uname", "-r").finish()[1].strip() == release

    diagnosis = json.loads(lab("ssh", flavour, "--", "forktail", "doctor", "--json").finish(120)[1])
    assert diagnosis["able"]
    probes = {measurement["name"]: measurement["probe"] for measurement in diagnosis["measurements"]}
    assert probes["fork"].startswith("fexit:")
    assert probes["page_table_copy"].startswith("fexit:")

    out = tmp_path / "out"
    run = lab("run", tiny, "--kernel", real_kernel, "--set", "load.rate=500", "--out", out, "--json")
    code, output, errors = run.finish(BOOT_AND_RUN_S)
    assert code in (0, 1), errors
    assert "Booting" not in errors
    summary = json.loads(output)
    assert summary["kernel"] == {"flavour": flavour, "release": release}
    assert summary["queries"]["snapshot"]["count"] > 0
    if release.startswith("6.1."):
        assert 0 < summary["faults"]["copy_on_write"] <= summary["faults"]["count"]
    assert (out / "report.html").exists()
    environment = json.loads((out / "environment.json").read_text())
    assert environment["lab"] | {"schema": ""} == {
        "schema": "", "accelerator": guest["accelerator"], "cpus": 2, "memory_bytes": 2 * 2**30, "numa_nodes": 1,
        "icount": False,
    }  # fmt: skip
    emulated = any("emulated by QEMU's TCG" in warning for warning in summary["warnings"])
    assert emulated == (guest["accelerator"] == "tcg")

    killed = lab("run", tiny, "--kernel", real_kernel, "--out", tmp_path / "killed")
    killed.wait_for(lambda: "tar" in killed.started().values(), 60)
    assert "at work on another run" in lab("run", tiny, "--kernel", real_kernel).finish()[2]
    time.sleep(5)
    killed.process.kill()
    left = lab("ssh", flavour, "--", "sh", "-c", "sleep 10; pgrep -l 'redis|forktail'").finish()[1]
    assert left == "", "the run in the guest outlived the command that wanted it"

    code, output, _ = lab("down").finish()
    assert (code, output) == (0, f"{flavour} is down.\n")
    assert not up.orphans()


def test_a_fork_takes_the_same_number_of_instructions_each_time(
    lab: Lab, real_kernel: Path, tiny: Path, tmp_path: Path
) -> None:
    code, output, errors = lab("up", "--kernel", real_kernel, "--icount", "--memory", "1GiB").finish(BOOT_AND_RUN_S)
    assert code == 0, errors
    assert "1 instruction = 1 ns" in errors
    forks = []
    for number in range(2):
        out = tmp_path / f"run-{number}"
        run = lab("run", tiny, "--kernel", real_kernel, "--icount", "--memory", "1GiB", "--out", out, "--json")
        code, output, errors = run.finish(BOOT_AND_RUN_S)
        assert code in (0, 1), errors
        assert "Booting" not in errors
        summary = json.loads(output)
        assert summary["emulation"] == "times are instructions"
        assert any("1 instruction = 1 ns" in warning for warning in summary["warnings"])
        forks.append(summary["fork"]["duration_us"])
    assert json.loads((out / "environment.json").read_text())["lab"]["icount"]
    assert forks[0] == pytest.approx(forks[1], rel=0.05)
    assert lab("down").finish()[0] == 0


# While CPU 0 is busy, the times of its turns as CPU 1 sees them: what is missing between two readings of the clock.
_TURNS = """
import os, time
spinner = os.fork()
os.sched_setaffinity(0, {1} if spinner else {0})
if not spinner:
    while True: pass
readings = [time.monotonic_ns() for _ in range(200_000)]
os.kill(spinner, 9)
gaps = sorted(after - before for before, after in zip(readings, readings[1:]))
print(sum(gap > 10_000 for gap in gaps), gaps[-5])
"""


def test_cpus_that_count_instructions_take_short_turns(lab: Lab, real_kernel: Path) -> None:
    up = lab("up", "--kernel", real_kernel, "--icount", "--cpus", "2", "--memory", "1GiB")
    code, _, errors = up.finish(BOOT_AND_RUN_S)
    assert code == 0, errors
    (guest,) = json.loads(lab("status", "--json").finish()[1])["guests"]
    code, output, errors = lab("ssh", guest["flavour"], "--", f"python3 -c '{_TURNS}'").finish(BOOT_AND_RUN_S)
    assert code == 0, errors
    turns, longest = map(int, output.split())
    assert turns > 100, "CPU 0 was not busy"
    assert longest < 100_000, "a turn is to be 25 us, and to the next tick it would be 2 ms"
    assert lab("down").finish()[0] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
def test_a_guest_ends_with_its_command(
    lab: Lab, real_kernel: Path, tiny: Path, tmp_path: Path, number: signal.Signals
) -> None:
    command = lab("run", tiny, "--kernel", real_kernel, "--memory", "1GiB", "--out", tmp_path / "out")
    command.wait_for(lambda: "tar" in command.started().values(), BOOT_AND_RUN_S)
    assert [name for name in command.started().values() if name.startswith("qemu")]
    command.process.send_signal(number)
    code, _, errors = command.finish()
    assert code == (130 if number == signal.SIGINT else -signal.SIGKILL), errors
    assert not command.orphans()
    assert not (tmp_path / "out").exists()


def test_an_interrupted_up_leaves_no_guest(lab: Lab, real_kernel: Path) -> None:
    command = lab("up", "--kernel", real_kernel, "--memory", "1GiB")
    command.wait_for(lambda: any(name.startswith("qemu") for name in command.started().values()), BOOT_AND_RUN_S)
    command.process.send_signal(signal.SIGINT)
    assert command.finish()[0] == 130
    assert not command.orphans()
    assert lab("status").finish()[1] == "No guest is up.\n"


def test_a_guest_that_cannot_boot_is_told_by_its_console(lab: Lab, real_kernel: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    content = bytearray(real_kernel.read_bytes())
    content[0x8000:] = bytes(len(content) - 0x8000)
    broken.write_bytes(content)
    command = lab("up", "--kernel", broken, "--memory", "1GiB")
    code, _, errors = command.finish(BOOT_AND_RUN_S)
    assert code == 1
    assert "guest" in errors
    assert not command.orphans()

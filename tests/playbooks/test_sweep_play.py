# SPDX-License-Identifier: Apache-2.0
"""Whole sweeps and nights in guests of the lab. They count instructions, so that a busy machine changes no result."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.playbooks.conftest import Ansible, Play, whole

from forktail.kernel import cache
from forktail.lab.host import hosts
from forktail.lab.registry import living

pytestmark = [
    whole,
    pytest.mark.skipif(os.geteuid() != 0, reason="the guest image is made by root"),
    pytest.mark.skipif(cache.find("odf") is None, reason="not built yet: forktail kernel build all"),
]

PLAY_S = 3600
TINY = """
[server]
size = "64MiB"
[load]
rate = 200
clients = 10
[snapshot]
at = "1s"
[run]
warm_up = "500ms"
duration = "3s"
cool_down = "500ms"
limit = "60s"
[sweep]
repeat = 1
noise_floor = false
"""

Sweep = Callable[..., Play]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture
def play(ansible: Ansible, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sweep:
    """Start a playbook over `names` with variables of its own, all into `tmp_path / "sweep"` unless told otherwise."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def begin(playbook: str, names: str = "lab1", clients: str = "", **variables: Any) -> Play:
        given = {"workload": str(tiny), "out": str(tmp_path / "sweep")} | variables
        return ansible(
            "ansible-playbook", "-i", "playbooks/inventory/lab", f"playbooks/{playbook}.yml", "-e", json.dumps(given),
            FORKTAIL_LAB_HOSTS=names, FORKTAIL_LAB_MEMORY="1GiB",
            # Two guests that each count their own instructions have no time in common.
            FORKTAIL_LAB_CLIENTS=clients, FORKTAIL_LAB_ICOUNT="0" if clients else "1",
        )  # fmt: skip

    return begin


def _nobody_is_left(seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while (living() or hosts()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return not living() and not hosts()


def _wait_for(play: Play, condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PLAY_S
    while not condition():
        assert play.process.poll() is None, play.output
        assert time.monotonic() < deadline, play.output
        time.sleep(0.2)


def _sweep(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "sweep.json").read_text())
    return found


def test_two_hosts_two_kernels_one_report_and_what_is_there_is_not_made_again(play: Sweep, tmp_path: Path) -> None:
    kernels = ["default", "odf"]
    killed = play("sweep", "lab1,lab2", forktail_kernels=kernels)
    first = tmp_path / "sweep/runs/lab1-default-r1/run.json"
    _wait_for(killed, first.exists)
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait()
    assert _nobody_is_left(), "guests outlived the play that they were booted for"
    made = first.stat().st_mtime_ns

    code, output = play("sweep", "lab1,lab2", forktail_kernels=kernels).finish(PLAY_S)
    assert code == 0, output
    assert first.stat().st_mtime_ns == made
    sweep = _sweep(tmp_path / "sweep")
    assert {(cell["values"]["host"], cell["kernel"], cell["valid_runs"]) for cell in sweep["cells"]} == {
        (host, kernel, 1) for host in ("lab1", "lab2") for kernel in kernels
    }
    assert (tmp_path / "sweep/report.html").exists()
    environment = json.loads((tmp_path / "sweep/runs/lab2-odf-r1/environment.json").read_text())
    assert environment["host"]["name"] == "lab2"
    assert environment["host"]["boot_method"] == "direct"
    assert environment["host"]["kernel"]["mechanism"] == "odf"
    assert environment["host"]["kernel"]["build"] == environment["kernel"]["version"].split()[0]
    assert environment["host"]["boot_id"] == environment["kernel"]["boot_id"]
    assert _nobody_is_left()


def test_a_server_and_a_client_and_two_kernels(play: Sweep, tmp_path: Path) -> None:
    code, output = play("sweep", "lab1", clients="lab2", forktail_kernels=["default", "odf"]).finish(PLAY_S)
    # In the host's time a generator may be late, and then the report and the play say so.
    assert code == 0 or "A cell has no valid run" in output, output
    assert {run["name"]: run["state"] for run in _sweep(tmp_path / "sweep")["runs"]} == {
        "default-r1": "finished",
        "odf-r1": "finished",
    }
    for name, release in (("default-r1", "-default"), ("odf-r1", "-odf")):
        run = tmp_path / "sweep/runs" / name
        summary = json.loads((run / "summary.json").read_text())
        assert summary["kernel"]["release"].endswith(release)
        client = summary["load"]["host"]
        # The client stays on its stock kernel, whatever the server runs.
        assert client["kernel"].endswith("-default")
        assert client["address"].startswith("10.77.0.")
        assert 0 < client["round_trip_us"] < 1e6
        assert 0 < client["error_us"] < 1e6
        queries = summary["queries"]
        assert queries["snapshot"]["count"] > queries["ambiguous"]["count"]
        assert summary["load"]["completed"] == summary["load"]["intended"]
    assert _nobody_is_left()


def test_a_kernel_that_panics_at_boot_is_told_and_the_others_are_measured(play: Sweep, tmp_path: Path) -> None:
    arguments = {"odf": "init=/nowhere"}
    code, output = play("sweep", forktail_kernels=["odf", "default"], forktail_kernel_arguments=arguments).finish(
        PLAY_S
    )
    assert code == 2, output
    assert "odf failed on lab1" in output
    assert "Kernel panic" in output
    runs = {run["name"]: run["state"] for run in _sweep(tmp_path / "sweep")["runs"]}
    assert runs == {"odf-r1": "missing", "default-r1": "finished"}
    assert _nobody_is_left()


def test_too_little_memory_is_told_before_a_kernel_is_changed(play: Sweep, tmp_path: Path) -> None:
    code, output = play("sweep", forktail_kernels=["odf"], settings=["server.size=2GiB"]).finish(PLAY_S)
    assert code == 2, output
    assert "server.size 2GiB needs" in " ".join(output.split())
    assert "Boot the guest" not in output
    assert not list((tmp_path / "sweep/runs").iterdir())


def test_a_night_passes_and_fails_on_an_injected_regress(play: Sweep, tiny: Path, tmp_path: Path) -> None:
    thresholds = tmp_path / "thresholds.toml"
    # Of sixty queries in a window the 99th percentile is whichever fell into the fork.
    thresholds.write_text('[runs]\nfewest = 3\n[metrics."snapshot.p99_us"]\njudged = false\n')
    given: dict[str, Any] = {
        "forktail_kernels": ["default"],
        "settings": ["sweep.repeat=3"],
        "thresholds": str(thresholds),
        "baselines": str(tmp_path / "baselines"),
    }

    def night(number: int, **more: Any) -> tuple[int, str]:
        return play("nightly", out=str(tmp_path / f"night{number}"), **given, **more).finish(PLAY_S)

    code, output = night(1)
    assert code == 2, output
    assert "has no baseline of lab" in " ".join(output.split())
    code, output = night(1, first=True)
    assert code == 0, output
    assert "FIRST BASELINE" in output
    code, output = night(2)
    assert code == 0, output
    assert "PASS" in output
    # The function tracer makes every function of the kernel slower, fork's among them.
    code, output = night(3, forktail_kernel_arguments={"default": "ftrace=function"})
    assert code == 2, output
    assert "REGRESS" in output
    assert len([*(tmp_path / "baselines").rglob("baseline.json")]) == 2

# SPDX-License-Identifier: Apache-2.0
"""A sweep of real runs, cut off and taken up again."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from tests.run.conftest import Start

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="eBPF probes need root")


def test_a_sweep_that_was_cut_off_goes_on_where_it_stopped(start: Start, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    command = start("sweep", tiny, "--set", "sweep.repeat=1", "--out", out)
    first = out / "runs" / "local-r1" / "run.json"
    command.wait_for(first.exists)
    command.wait_for_load()
    command.process.send_signal(signal.SIGINT)
    assert command.finish()[0] == 130
    assert command.orphans() == {}
    made = first.stat().st_mtime_ns

    code, output, errors = start("sweep", tiny, "--set", "sweep.repeat=1", "--out", out, "--json").finish(120)
    # On a crowded host a tiny run may be invalid, which the exit code tells and this test does not judge.
    assert code in (0, 1), errors
    assert first.stat().st_mtime_ns == made
    assert "1 of 2 runs are there already" in errors
    sweep = json.loads(output)
    assert [run["state"] for run in sweep["runs"]] == ["finished", "finished"]
    assert [cell["arm"] for cell in sweep["cells"]] == ["local", "local (again)"]
    assert (out / "report.html").exists()
    assert json.loads((out / "sweep.json").read_text()) == sweep


def test_a_run_that_is_not_valid_is_made_again_beside_it(start: Start, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "sweep"
    plan = ["--set", "sweep.repeat=1", "--set", "sweep.spare=1", "--set", "sweep.noise_floor=false"]
    # Every GET is answered with an error.
    faulty = ["--set", "load.set_get='1:1'", "--set", "server.config.rename-command='GET GONE'"]
    code, output, errors = start("sweep", tiny, *plan, *faulty, "--out", out, "--json").finish(120)
    assert code == 1, errors
    assert "local-r2 is made too, for a run of local that is not valid" in errors
    sweep = json.loads(output)
    assert [(run["name"], run["state"], run["valid"]) for run in sweep["runs"]] == [
        ("local-r1", "finished", False),
        ("local-r2", "finished", False),
    ]
    assert all("got an error for a reply" in " ".join(run["reasons"]) for run in sweep["runs"])
    assert sweep["cells"][0]["runs"] == 2

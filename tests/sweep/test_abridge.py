# SPDX-License-Identifier: Apache-2.0
"""An abridged sweep: all that its readers need, nothing of the machine it is of, and no raw file ever lost for it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.synthetic import RunDirectory
from typer.testing import CliRunner

from forktail import rundir
from forktail.analysis.compare.side import read_side
from forktail.analysis.sweep import analyse_sweep
from forktail.analysis.sweep.cells import read_sweep
from forktail.cli import app
from forktail.errors import BadInput
from forktail.sweep.abridge import abridge
from forktail.sweep.plan import plan_sweep
from forktail.sweep.sweep import open_sweep

REFERENCE = Path(__file__).parents[2] / "results" / "reference"


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("some")
    workload = directory / "some.toml"
    workload.write_text(
        '[server]\npath = "/home/me/redis-5.0.10/src/redis-server"\n[sweep]\nrepeat = 2\nnoise_floor = false'
    )
    plan = plan_sweep(workload, [], ["default"])
    open_sweep(plan, directory / "sweep")
    run = RunDirectory.whole()
    run.manifest["server"]["path"] = "/home/me/redis-5.0.10/src/redis-server"
    run.manifest["warnings"] = [
        "The log is in /srv/me/log.txt, said http://example.org/a/b, at 1/2 of /sys/kernel/mm/ksm."
    ]
    run.write(directory / "sweep" / rundir.RUNS / plan.runs[0].name)
    analyse_sweep(directory / "sweep")
    return directory / "sweep"


def test_readers_find_in_it_what_they_found_in_the_sweep(sweep: Path, tmp_path: Path) -> None:
    abridge(sweep, tmp_path / "small")
    assert read_sweep(tmp_path / "small").document == read_sweep(sweep).document
    whole, small = read_side(sweep), read_side(tmp_path / "small")
    assert [(cell.runs, cell.lost) for cell in small.cells] == [(cell.runs, cell.lost) for cell in whole.cells]
    names = {path.name for path in (tmp_path / "small").rglob("*") if path.is_file()}
    assert names == {rundir.PLAN, rundir.SWEEP, rundir.SUMMARY, rundir.ENVIRONMENT}


def test_a_path_of_this_machine_keeps_its_name_alone(sweep: Path, tmp_path: Path) -> None:
    abridge(sweep, tmp_path / "small")
    text = "".join(path.read_text() for path in (tmp_path / "small").rglob("*.json"))
    assert "/home" not in text
    assert "/srv" not in text
    plan = rundir.read_json(tmp_path / "small" / rundir.PLAN)
    assert plan["cells"][0]["workload"]["server"]["path"] == "redis-server"
    assert "in log.txt, said http://example.org/a/b, at 1/2 of /sys/kernel/mm/ksm." in text


def test_it_is_replaced_by_another(sweep: Path, tmp_path: Path) -> None:
    abridge(sweep, tmp_path / "small")
    (tmp_path / "small" / rundir.RUNS / "old").mkdir()
    (tmp_path / "small" / rundir.RUNS / "old" / rundir.SUMMARY).write_text("{}")
    abridge(sweep, tmp_path / "small")
    assert not (tmp_path / "small" / rundir.RUNS / "old").exists()


def test_raw_files_are_never_written_over(sweep: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is the sweep itself"):
        abridge(sweep, sweep)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / rundir.QUERY_LOG).write_text("raw")
    with pytest.raises(BadInput, match="holds more than an abridged sweep"):
        abridge(sweep, tmp_path / "mine")
    assert (tmp_path / "mine" / rundir.QUERY_LOG).read_text() == "raw"


def test_what_is_no_sweep_is_told(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["abridge", str(tmp_path), str(tmp_path / "out")])
    assert result.exit_code == BadInput.exit_code
    assert not (tmp_path / "out").exists()


def _known(old: Any, new: Any) -> bool:
    """Whether all that the one document says is in the other."""
    if isinstance(old, dict):
        return all(key in new and _known(old[key], new[key]) for key in old)
    return bool(old == new)


def test_the_committed_sweep_is_small_and_says_nothing_of_a_machine() -> None:
    files = [path for path in REFERENCE.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 2_000_000
    assert {path.name for path in files} == {rundir.PLAN, rundir.SWEEP, rundir.SUMMARY, rundir.ENVIRONMENT}
    for path in files:
        assert not re.search(r'[\s"]/(?!usr/|sys/|proc/|dev/|boot/|etc/)\w+/', path.read_text()), path
    told = json.loads((REFERENCE / rundir.SWEEP).read_text())
    made = read_sweep(REFERENCE).document
    # A later forktail may know more of a cell, but nothing else.
    assert len(told["cells"]) == len(made["cells"])
    assert all(_known(cell, new) for cell, new in zip(told["cells"], made["cells"], strict=True))
    assert (told["runs"], told["emulated"]) == (made["runs"], made["emulated"])

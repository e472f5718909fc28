# SPDX-License-Identifier: Apache-2.0
"""A sweep over hosts: what is left for each, in an order that boots seldom, and their runs as one sweep."""

import json
import subprocess
from pathlib import Path

import pytest

from forktail import rundir
from forktail.errors import BadInput
from forktail.sweep import fleet
from forktail.sweep.plan import Plan, over_hosts, plan_sweep
from forktail.sweep.sweep import open_sweep

VARIED = '[sweep]\nrepeat = 2\nvary."server.size" = ["64MiB", "128MiB"]\n'


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    path = tmp_path / "varied.toml"
    path.write_text(VARIED)
    return path


def _plan(workload: Path, *hosts: str) -> Plan:
    return over_hosts(plan_sweep(workload, [], ["default", "odf"]), hosts)


def _archive(directory: Path, *files: str) -> Path:
    made = directory / "made"
    made.mkdir(exist_ok=True)
    for name in files:
        (made / name).write_text("{}")
    archive = directory / "run.tar.gz"
    subprocess.run(["tar", "-czf", archive, "-C", made, "."], check=True)
    return archive


def test_a_host_meets_a_kernel_once_a_round_whatever_else_is_varied(workload: Path, tmp_path: Path) -> None:
    plan = _plan(workload, "one", "two")
    for host in ("one", "two"):
        legs = fleet.legs(plan, host, tmp_path)
        assert [leg.kernel for leg in legs] == ["default", "odf", "default", "odf", "default"]
        assert [len(leg.runs) for leg in legs] == [2, 2, 4, 2, 2]
        assert {run.cell.host for leg in legs for run in leg.runs} == {host}
    assert len({run.name for run in plan.runs}) == len(plan.runs) == 2 * 2 * 3 * 2


def test_the_sweep_of_one_host_is_as_any_other(workload: Path) -> None:
    plain = plan_sweep(workload, [], ["default", "odf"])
    alone = _plan(workload, "one")
    assert {cell.name for cell in alone.cells} == {cell.name for cell in plain.cells}
    assert all("host" not in cell["values"] for cell in alone.as_json()["cells"])
    assert {cell["values"]["host"] for cell in _plan(workload, "one", "two").as_json()["cells"]} == {"one", "two"}


def test_what_is_taken_is_not_asked_for_again(workload: Path, tmp_path: Path) -> None:
    plan, directory = _plan(workload, "one", "two"), tmp_path / "sweep"
    open_sweep(plan, directory)
    name = fleet.legs(plan, "two", directory)[0].runs[0].name
    assert fleet.take(directory, name, _archive(tmp_path, rundir.MANIFEST)) == directory / rundir.RUNS / name
    task = fleet.task(plan, ["one", "two"], directory)
    assert (task["runs"], task["finished"]) == (24, 1)
    left = {host: [run["name"] for leg in legs for run in leg["runs"]] for host, legs in task["hosts"].items()}
    assert {host: len(runs) for host, runs in left.items()} == {"one": 12, "two": 11}
    assert name not in left["two"]
    assert {run["workload"] for legs in task["hosts"].values() for leg in legs for run in leg["runs"]} == {
        *task["workloads"]
    }
    assert "128MiB" in task["workloads"][task["heaviest"]]
    assert json.dumps(task)


def test_a_run_that_is_not_whole_is_kept_and_asked_for_again(workload: Path, tmp_path: Path) -> None:
    plan, directory = _plan(workload, "one"), tmp_path / "sweep"
    open_sweep(plan, directory)
    before = fleet.legs(plan, "one", directory)
    taken = fleet.take(directory, before[0].runs[0].name, _archive(tmp_path, "server.log"))
    assert taken.name.endswith(rundir.PARTIAL_SUFFIX)
    assert (taken / "server.log").exists()
    assert fleet.legs(plan, "one", directory) == before


def test_what_cannot_be_taken_is_told(workload: Path, tmp_path: Path) -> None:
    plan, directory = _plan(workload, "one"), tmp_path / "sweep"
    open_sweep(plan, directory)
    with pytest.raises(BadInput, match="has no run stranger"):
        fleet.take(directory, "stranger", _archive(tmp_path))
    damaged = tmp_path / "damaged.tar.gz"
    damaged.write_bytes(b"nothing of the kind")
    with pytest.raises(BadInput, match="is no whole tar"):
        fleet.take(directory, plan.runs[0].name, damaged)


def test_kernels_and_hosts_are_checked() -> None:
    with pytest.raises(BadInput, match="did you mean odf"):
        fleet.check_kernels(["default", "odv"])
    with pytest.raises(BadInput, match="one is named twice"):
        fleet.check_hosts(["one", "one"])
    with pytest.raises(BadInput, match="give --host"):
        fleet.check_hosts([])

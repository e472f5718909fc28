# SPDX-License-Identifier: Apache-2.0
"""A sweep goes on where it stopped, survives a run that fails, and refuses another sweep's directory."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest

from forktail import rundir
from forktail.errors import BadInput, RunFailed
from forktail.sweep.plan import Plan, PlannedRun, plan_sweep
from forktail.sweep.sweep import open_sweep, run_sweep


class _Listener:
    def __init__(self) -> None:
        self.finished_before = -1
        self.faults: list[str | None] = []

    def begin(self, total: int, finished: int) -> None:
        self.finished_before = finished

    def spare(self, run: PlannedRun) -> None: ...

    def run(self, run: PlannedRun) -> None: ...

    def end_run(self, run: PlannedRun, fault: str | None) -> None:
        self.faults.append(fault)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    path = tmp_path / "some.toml"
    path.write_text("[sweep]\nrepeat = 2")
    return plan_sweep(path, [], ["default"])


def _valid(_: Path) -> bool:
    return True


def _finish(run: PlannedRun, path: Path) -> None:
    path.mkdir()
    rundir.write_json(path / rundir.MANIFEST, {"schema": rundir.RUN_SCHEMA})


def test_finished_runs_are_not_run_again(plan: Plan, tmp_path: Path) -> None:
    directory = tmp_path / "sweep"
    made: list[str] = []

    def stop_after_three(run: PlannedRun, path: Path) -> None:
        if len(made) == 3:
            raise KeyboardInterrupt
        made.append(run.name)
        _finish(run, path)

    open_sweep(plan, directory)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(plan, directory, stop_after_three, _valid, _Listener())
    again = _Listener()
    later: list[str] = []

    def make(run: PlannedRun, path: Path) -> None:
        later.append(run.name)
        _finish(run, path)

    open_sweep(plan, directory)
    run_sweep(plan, directory, make, _valid, again)
    assert again.finished_before == 3
    assert made + later == [run.name for run in plan.runs]


def test_a_run_that_fails_is_told_and_the_others_go_on(plan: Plan, tmp_path: Path) -> None:
    first = plan.runs[0].name

    def fail_first(run: PlannedRun, path: Path) -> None:
        if run.name == first:
            raise RunFailed("The server died.")
        _finish(run, path)

    listener = _Listener()
    open_sweep(plan, tmp_path / "sweep")
    failed = run_sweep(plan, tmp_path / "sweep", fail_first, _valid, listener)
    assert failed == {first: "The server died."}
    assert listener.faults == ["The server died.", None, None, None]


def test_a_run_that_is_not_valid_has_a_spare_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("[sweep]\nrepeat = 2\nspare = 2")
    plan = plan_sweep(path, [], ["default"])
    directory = tmp_path / "sweep"
    made: list[str] = []
    faulty = {"default-r2", "default-r3"}

    def make(run: PlannedRun, path: Path) -> None:
        made.append(run.name)
        _finish(run, path)

    def valid(run: Path) -> bool:
        return run.name not in faulty

    open_sweep(plan, directory)
    assert [run["name"] for run in rundir.read_plan(directory)["runs"]] == [run.name for run in plan.runs]
    run_sweep(plan, directory, make, valid, _Listener())
    # The noise floor's arm was valid both times.
    assert made == ["default-r1", "default-again-r1", "default-again-r2", "default-r2", "default-r3", "default-r4"]
    assert [run["name"] for run in rundir.read_plan(directory)["runs"]] == made

    made.clear()
    open_sweep(plan, directory)
    run_sweep(plan, directory, make, valid, _Listener())
    assert made == []


def test_spares_end_though_none_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("[sweep]\nrepeat = 1\nspare = 2\nnoise_floor = false")
    plan = plan_sweep(path, [], ["default"])
    made: list[str] = []

    def make(run: PlannedRun, path: Path) -> None:
        made.append(run.name)
        _finish(run, path)

    open_sweep(plan, tmp_path / "sweep")
    run_sweep(plan, tmp_path / "sweep", make, lambda _: False, _Listener())
    assert made == ["default-r1", "default-r2", "default-r3"]


def test_several_runs_at_a_time_begin_in_the_order_of_the_plan_and_end_with_a_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("[sweep]\nrepeat = 2\nspare = 1")
    plan = plan_sweep(path, [], ["default", "odf"])
    both = Barrier(2)
    begun: list[str] = []

    def make(run: PlannedRun, path: Path) -> None:
        begun.append(run.name)
        both.wait(10)  # No run ends before another has begun.
        if run.name == "odf-r1":
            raise RunFailed("The server died.")
        _finish(run, path)

    open_sweep(plan, tmp_path / "sweep")
    with ThreadPoolExecutor(2) as threads:
        failed = run_sweep(plan, tmp_path / "sweep", make, _valid, _Listener(), threads)
    planned = [run.name for run in plan.runs]
    assert failed == {"odf-r1": "The server died."}
    assert [set(begun[place : place + 2]) for place in (0, 2, 4)] == [
        set(planned[place : place + 2]) for place in (0, 2, 4)
    ]

    begun.clear()

    def refuse(run: PlannedRun, _: Path) -> None:
        begun.append(run.name)
        raise BadInput("The workload is at fault.")

    open_sweep(plan, tmp_path / "sweep")
    with ThreadPoolExecutor(1) as threads, pytest.raises(BadInput, match="at fault"):
        run_sweep(plan, tmp_path / "sweep", refuse, _valid, _Listener(), threads)
    assert begun == ["odf-r1"]


def test_a_run_that_ends_with_the_sweep_is_not_called_failed(tmp_path: Path) -> None:
    path = tmp_path / "some.toml"
    path.write_text("[sweep]\nrepeat = 1")
    plan = plan_sweep(path, [], ["default", "odf"])
    under_way, ended = Event(), Event()
    listener = _Listener()

    def make(run: PlannedRun, _: Path) -> None:
        if run.name == "default-r1":
            under_way.set()
            ended.wait(10)
            raise RunFailed("The guest was lost.")
        under_way.wait(10)
        raise BadInput("The workload is at fault.")

    open_sweep(plan, tmp_path / "sweep")
    with ThreadPoolExecutor(2) as threads:
        with pytest.raises(BadInput):
            run_sweep(plan, tmp_path / "sweep", make, _valid, listener, threads)
        ended.set()
    assert listener.faults == []


def test_another_plan_is_refused(plan: Plan, tmp_path: Path) -> None:
    other_path = tmp_path / "some.toml"
    other_path.write_text("[sweep]\nrepeat = 3")
    open_sweep(plan, tmp_path / "sweep")
    with pytest.raises(BadInput, match="a sweep of another plan"):
        open_sweep(plan_sweep(other_path, [], ["default"]), tmp_path / "sweep")


def test_a_directory_that_is_no_sweep_is_refused(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(BadInput, match="is no sweep"):
        open_sweep(plan, tmp_path / "other")

# SPDX-License-Identifier: Apache-2.0
"""The runs of a sweep, one after the other or several at a time; what is finished is not run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, as_completed
from pathlib import Path
from threading import Event
from typing import Protocol

from forktail import rundir
from forktail.errors import BadInput, ForktailError
from forktail.sweep.plan import Cell, Plan, PlannedRun

Judge = Callable[[Path], bool]
"""Whether the finished run in the directory given is valid."""

Measure = Callable[[PlannedRun, Path], object]
"""Makes one run into the directory given."""


class SweepProgress(Protocol):
    """Told how far a sweep is; the command line draws it."""

    def begin(self, total: int, finished: int) -> None:
        """The sweep begins: so many runs in all, so many of them there already."""

    def spare(self, run: PlannedRun) -> None:
        """A spare run comes to those announced, as a run of its cell is not valid."""

    def run(self, run: PlannedRun) -> None:
        """A run begins."""

    def end_run(self, run: PlannedRun, fault: str | None) -> None:
        """A run is over; `fault` says why when it failed."""


def open_sweep(plan: Plan, directory: Path) -> None:
    """Make the sweep's directory, or take up the one that is there if it is of the same plan."""
    document = plan.as_json()
    if (directory / rundir.PLAN).exists():
        if rundir.read_json(directory / rundir.PLAN, rundir.PLAN_SCHEMA) != document:
            raise BadInput(
                f"{directory} holds a sweep of another plan: choose another --out, or give the workload and "
                "the options that it was begun with."
            )
        return
    if directory.exists() and any(directory.iterdir()):
        raise BadInput(f"{directory} exists and is no sweep: choose another --out.")
    (directory / rundir.RUNS).mkdir(parents=True, exist_ok=True)
    rundir.write_json(directory / rundir.PLAN, document)


def finished(directory: Path, run: PlannedRun) -> bool:
    """Whether the sweep in the directory has the run already."""
    return (directory / rundir.RUNS / run.name / rundir.MANIFEST).exists()


def run_sweep(
    plan: Plan,
    directory: Path,
    measure: Measure,
    judge: Judge,
    progress: SweepProgress,
    threads: Executor | None = None,
) -> dict[str, str]:
    """Make every run of the plan that is not there yet, then what spares its cells need; returns why runs failed.

    Runs begin in the order of the plan: one after the other, or as many at a time as `threads` has. A run that fails
    does not end the sweep: the others are worth having, and the next call tries it again. One that is not valid stays,
    and is reported with the rest. Where the call ends early no further run begins; the caller ends those under way.
    """
    missing = [run for run in plan.runs if not finished(directory, run)]
    progress.begin(len(plan.runs), len(plan.runs) - len(missing))
    failed: dict[str, str] = {}

    def make(run: PlannedRun) -> None:
        progress.run(run)
        try:
            measure(run, directory / rundir.RUNS / run.name)
        except BadInput:
            raise
        except ForktailError as fault:
            failed[run.name] = str(fault)
        if not over.is_set():  # A run that ends with the sweep has no fault of its own.
            progress.end_run(run, failed.get(run.name))

    over = Event()
    try:
        _make_all(missing, make, threads)
        while spares := [run for run in _spares(plan, directory, judge) if run.name not in failed]:
            for spare in spares:
                progress.spare(spare)
            _make_all(spares, make, threads)
    finally:
        over.set()
    return failed


def _make_all(runs: Sequence[PlannedRun], make: Callable[[PlannedRun], None], threads: Executor | None) -> None:
    if threads is None:
        for run in runs:
            make(run)
        return
    made = [threads.submit(make, run) for run in runs]
    try:
        for future in as_completed(made):
            future.result()
    finally:
        for future in made:
            future.cancel()


def _spares(plan: Plan, directory: Path, judge: Judge) -> list[PlannedRun]:
    """The next spare runs that are needed: for each cell as many as it lacks valid runs."""
    needed = []
    for cell in plan.cells:
        left = [spare for spare in plan.spares if spare.cell == cell and not finished(directory, spare)]
        if left:
            needed += left[: _lacks(cell, plan, directory, judge)]
    return [spare for spare in plan.spares if spare in needed]


def _lacks(cell: Cell, plan: Plan, directory: Path, judge: Judge) -> int:
    """How many more of the cell's planned runs are not valid than it has valid spares."""

    def valid(runs: list[PlannedRun]) -> list[bool]:
        made = [run for run in runs if run.cell == cell and finished(directory, run)]
        return [judge(directory / rundir.RUNS / run.name) for run in made]

    return max(0, valid(plan.runs).count(False) - valid(plan.spares).count(True))

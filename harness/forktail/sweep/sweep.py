# SPDX-License-Identifier: Apache-2.0
"""The runs of a sweep, one after the other; what is finished is not run again."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
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


def run_sweep(plan: Plan, directory: Path, measure: Measure, judge: Judge, progress: SweepProgress) -> dict[str, str]:
    """Make every run of the plan that is not there yet, then what spares its cells need; returns why runs failed.

    A run that fails does not end the sweep: the others are worth having, and the next call tries it again. One that is
    not valid stays, and is told with the rest.
    """
    missing = [run for run in plan.runs if not finished(directory, run)]
    progress.begin(len(plan.runs), len(plan.runs) - len(missing))
    failed: dict[str, str] = {}
    for run in itertools.chain(missing, _spares(plan, directory, judge, progress)):
        progress.run(run)
        try:
            measure(run, directory / rundir.RUNS / run.name)
        except BadInput:
            raise
        except ForktailError as fault:
            failed[run.name] = str(fault)
        progress.end_run(run, failed.get(run.name))
    return failed


def _spares(plan: Plan, directory: Path, judge: Judge, progress: SweepProgress) -> Iterator[PlannedRun]:
    """The spare runs that are needed, each asked for when all before it were made."""
    for spare in plan.spares:
        if not finished(directory, spare) and _lacks(spare.cell, plan, directory, judge):
            progress.spare(spare)
            yield spare


def _lacks(cell: Cell, plan: Plan, directory: Path, judge: Judge) -> bool:
    """Whether more of the cell's planned runs are not valid than it has valid spares."""

    def valid(runs: list[PlannedRun]) -> list[bool]:
        made = [run for run in runs if run.cell == cell and finished(directory, run)]
        return [judge(directory / rundir.RUNS / run.name) for run in made]

    return valid(plan.runs).count(False) > valid(plan.spares).count(True)

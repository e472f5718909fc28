# SPDX-License-Identifier: Apache-2.0
"""The runs of a sweep, one after the other; what is finished is not run again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from forktail import rundir
from forktail.errors import BadInput, ForktailError
from forktail.sweep.plan import Plan, PlannedRun

Measure = Callable[[PlannedRun, Path], object]
"""Makes one run into the directory given."""


class SweepProgress(Protocol):
    """Told how far a sweep is; the command line draws it."""

    def begin(self, total: int, finished: int) -> None:
        """The sweep begins: so many runs in all, so many of them there already."""

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


def run_sweep(plan: Plan, directory: Path, measure: Measure, progress: SweepProgress) -> dict[str, str]:
    """Make every run of the plan that is not there yet; returns why runs failed, by name.

    A run that fails does not end the sweep: the others are worth having, and the next call tries it again.
    """
    missing = [run for run in plan.runs if not finished(directory, run)]
    progress.begin(len(plan.runs), len(plan.runs) - len(missing))
    failed: dict[str, str] = {}
    for run in missing:
        progress.run(run)
        try:
            measure(run, directory / rundir.RUNS / run.name)
        except BadInput:
            raise
        except ForktailError as fault:
            failed[run.name] = str(fault)
        progress.end_run(run, failed.get(run.name))
    return failed

# SPDX-License-Identifier: Apache-2.0
"""`forktail sweep`: the workload over kernels and values, repeated, resumable, in one report."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from forktail.cli.console import Json, notes, print_json, told_clearly
from forktail.cli.run import RESULTS
from forktail.measure.progress import Silence
from forktail.measure.run import measure
from forktail.sweep.plan import LOCAL, PlannedRun, plan_sweep
from forktail.sweep.sweep import open_sweep, run_sweep


class _Bar:
    """One bar over all runs, with the run under way beside it; a line a run where there is no terminal."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=notes,
            disable=not notes.is_terminal,
        )
        self._task = self._bar.add_task("sweep")

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def begin(self, total: int, finished: int) -> None:
        self._bar.update(self._task, total=total, completed=finished)
        if finished:
            notes.print(f"{finished} of {total} runs are there already")

    def run(self, run: PlannedRun) -> None:
        self._bar.update(self._task, description=run.name)
        if not notes.is_terminal:
            notes.print(f"{run.name} ...")

    def end_run(self, run: PlannedRun, fault: str | None) -> None:
        self._bar.advance(self._task)
        if fault:
            notes.print(f"{run.name} failed: {fault}", style="red", markup=False, highlight=False, soft_wrap=True)


def sweep(
    workload: Annotated[Path, typer.Argument(help="The workload, a TOML file; its [sweep] says what varies.")],
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value of the workload.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The sweep's directory; one that is there is resumed.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run every cell of a sweep on the kernel at hand, and report them side by side."""
    with told_clearly():
        plan = plan_sweep(workload, assignments or [], [LOCAL])
        directory = out or RESULTS / f"{datetime.now():%Y%m%dT%H%M%S}-{plan.name}-sweep"
        open_sweep(plan, directory)
        with _Bar() as bar:
            failed = run_sweep(plan, directory, lambda run, path: measure(run.cell.workload, path, Silence()), bar)
        from forktail.analysis.sweep import analyse_sweep
        from forktail.analysis.sweep.table import print_sweep

        result = analyse_sweep(directory)
        if as_json:
            print_json(result.document)
        else:
            print_sweep(result)
            print(f"\nReport: {directory / 'report.html'}")
        if failed or not result.valid:
            raise typer.Exit(1)

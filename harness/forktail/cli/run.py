# SPDX-License-Identifier: Apache-2.0
"""`forktail run` and `forktail report`: measure, then make the result of what was measured.

The analysis side is imported only when a result is wanted, after the measurement is over.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from forktail import rundir
from forktail.cli.console import Json, print_json, told_clearly
from forktail.cli.progress import Bars
from forktail.errors import BadInput
from forktail.measure.preflight import disk_needed, memory_needed, preflight
from forktail.measure.run import measure
from forktail.workload import Workload, assigned_keys, read_workload, refuse_sweep_keys, refuse_without_effect

RESULTS = Path("results")


def conclude(run: Path, as_json: bool) -> None:
    """Analyse a run, print its table and where the report lies; exit code 1 for a run that is not valid."""
    from forktail.analysis import analyse
    from forktail.analysis.table import print_summary

    summary = analyse(run)
    _tell(summary.document, summary.valid, lambda: print_summary(summary), run, as_json)


def conclude_sweep(directory: Path, as_json: bool) -> None:
    """Analyse a sweep, print its table and where the report lies; exit code 1 where a cell has no valid run."""
    from forktail.analysis.sweep import analyse_sweep
    from forktail.analysis.sweep.table import print_sweep

    sweep = analyse_sweep(directory)
    _tell(sweep.document, sweep.valid, lambda: print_sweep(sweep), directory, as_json)


def _tell(result: dict[str, Any], valid: bool, show: Callable[[], None], directory: Path, as_json: bool) -> None:
    if as_json:
        print_json(result)
    else:
        show()
        print(f"\nReport: {directory / rundir.REPORT}")
    if not valid:
        raise typer.Exit(1)


def _print_able(plan: Workload, as_json: bool) -> None:
    """Say that the host can carry a run, and what the run takes of it at most."""
    memory, disk = memory_needed(plan), disk_needed(plan)
    if as_json:
        print_json({"able": True, "name": plan.name, "memory_bytes": memory, "disk_bytes": disk})
    else:
        print(
            f"This host can carry {plan.name}: it needs up to {memory / 2**30:.1f} GiB of memory and "
            f"{disk / 2**30:.1f} GiB of disk, and nothing was started."
        )


def _default_out(workload: Workload) -> Path:
    return RESULTS / f"{datetime.now():%Y%m%dT%H%M%S}-{workload.name}"


def run(
    workload: Annotated[Path, typer.Argument(help="The workload, a TOML file.")],
    assignments: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a value of the workload.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The run directory [results/TIME-NAME].")
    ] = None,
    report: Annotated[bool, typer.Option(help="Analyse and report after the run.")] = True,
    check: Annotated[
        bool, typer.Option("--check", help="Only say whether this host can carry the run; nothing is started.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run a workload on the kernel at hand: fill, load, snapshot, measure, classify, report."""
    with told_clearly():
        if not report and (as_json or check):
            raise BadInput(
                "--no-report leaves nothing for --json to print: leave one of them out."
                if as_json
                else "--check starts nothing, so that there is nothing to report: leave --no-report out."
            )
        plan = read_workload(workload, assignments or [])
        refuse_sweep_keys(assignments or [])
        refuse_without_effect(assigned_keys(assignments or []), [plan])
        if check:
            preflight(plan, out or _default_out(plan))
            _print_able(plan, as_json)
            return
        with Bars() as bars:
            directory = measure(plan, out or _default_out(plan), bars)
        if report:
            conclude(directory, as_json)
        else:
            print(directory)


def report_run(
    run: Annotated[Path, typer.Argument(help="A run directory, or a sweep's.")],
    as_json: Json = False,
) -> None:
    """Make the result of a run or a sweep again from its raw files: table, JSON, report.html, pictures."""
    with told_clearly():
        if (run / rundir.PLAN).exists():
            conclude_sweep(run, as_json)
        else:
            conclude(run, as_json)

# SPDX-License-Identifier: Apache-2.0
"""`forktail sweep`: the workload over kernels and values, repeated, resumable, in one report."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from forktail import rundir
from forktail.cli.console import Json, notes, told_clearly
from forktail.cli.kernel import Steps
from forktail.cli.lab import Cpus, IcountOfRun, Memory, machine_for_run, machine_of
from forktail.cli.run import RESULTS, conclude_sweep
from forktail.errors import BadInput
from forktail.flavour import flavour_here
from forktail.kernel.build import build
from forktail.kernel.series import read_series
from forktail.lab.accelerator import accelerator_for
from forktail.lab.kernel import LabKernel, find_kernel
from forktail.lab.machine import Machine
from forktail.lab.run import check_fits
from forktail.lab.sweep_guests import SweepGuests
from forktail.measure.progress import Silence
from forktail.measure.run import measure
from forktail.sweep.plan import LOCAL, Plan, PlannedRun, plan_sweep
from forktail.sweep.sweep import open_sweep, run_sweep
from forktail.workload import read_workload


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

    def tell(self, sentence: str) -> None:
        notes.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def spare(self, run: PlannedRun) -> None:
        task = self._bar.tasks[self._task]
        self._bar.update(self._task, total=(task.total or 0) + 1)
        self.tell(f"{run.name} is made too, for a run of {run.cell.name} that is not valid")

    def run(self, run: PlannedRun) -> None:
        self._bar.update(self._task, description=run.name)
        if not notes.is_terminal:
            notes.print(f"{run.name} ...")

    def end_run(self, run: PlannedRun, fault: str | None) -> None:
        self._bar.advance(self._task)
        if fault:
            notes.print(f"{run.name} failed: {fault}", style="red", markup=False, highlight=False, soft_wrap=True)


def _lab_kernels(wanted: Sequence[str]) -> dict[str, LabKernel]:
    """The lab's kernels by flavour; what the cache lacks is built."""
    series = read_series()
    with Steps() as steps:
        for flavour in wanted or series.flavours:
            build(flavour, series=series, progress=steps)
    return {flavour: find_kernel(flavour) for flavour in wanted or series.flavours}


def _valid(run: Path) -> bool:
    """The verdict on a run, found by a process of its own: this one measures, and stays light.

    A run that cannot be read is not made again: the report says what is wrong with it.
    """
    if not (run / rundir.SUMMARY).exists():
        forktail = Path(sys.executable).with_name("forktail")
        subprocess.run([forktail, "report", run], stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if not (run / rundir.SUMMARY).exists():
        return True
    return bool(rundir.read_json(run / rundir.SUMMARY, rundir.SUMMARY_SCHEMA)["valid"])


def _in_lab(plan: Plan, kernels: dict[str, LabKernel], machine: Machine, directory: Path) -> dict[str, str]:
    for cell in plan.cells:
        check_fits(cell.workload, machine)
    with _Bar() as bar, SweepGuests(kernels, machine, bar.tell) as guests:
        return run_sweep(plan, directory, guests.measure, _valid, bar)


def _on_this_host(plan: Plan, directory: Path) -> dict[str, str]:
    with _Bar() as bar:
        return run_sweep(plan, directory, lambda run, path: measure(run.cell.workload, path, Silence()), _valid, bar)


def sweep(
    workload: Annotated[Path, typer.Argument(help="The workload, a TOML file; its [sweep] says what varies.")],
    lab: Annotated[bool, typer.Option("--lab", help="Run in guests of the lab, a kernel each.")] = False,
    flavours: Annotated[
        list[str] | None,
        typer.Option("--kernel", metavar="FLAVOUR", help="With --lab: a kernel to measure [sweep.kernels, else all]."),
    ] = None,
    memory: Memory = None,
    cpus: Cpus = None,
    icount: IcountOfRun = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a value of the workload, and do not vary it."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The sweep's directory; one that is there is resumed.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Run every cell of a sweep, on the kernel at hand or on the lab's, and report them side by side."""
    with told_clearly():
        wanted = flavours or read_workload(workload, assignments or []).sweep.kernels
        if icount and not lab:
            raise BadInput("--icount is for guests of the lab, and this host's own time passes as it does: give --lab.")
        machine_of(memory, cpus, icount=bool(icount))  # A fault in the options is told before kernels are built.
        kernels = _lab_kernels(wanted) if lab else {}

        def emulates(machine: Machine) -> bool:
            return any(accelerator_for(machine, kernel.image) == "tcg" for kernel in kernels.values())

        machine = machine_for_run(workload, emulates, memory, cpus, icount=icount)
        local = flavour_here()
        plan = plan_sweep(workload, assignments or [], list(kernels) or [LOCAL], emulates(machine), local)
        directory = out or RESULTS / f"{datetime.now():%Y%m%dT%H%M%S}-{plan.name}-sweep"
        open_sweep(plan, directory)
        if lab:
            failed = _in_lab(plan, kernels, machine, directory)
        else:
            failed = _on_this_host(plan, directory)
        conclude_sweep(directory, as_json)
        if failed:
            raise typer.Exit(1)

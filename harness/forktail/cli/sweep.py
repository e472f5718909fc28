# SPDX-License-Identifier: Apache-2.0
"""`forktail sweep`: the workload over kernels and values, repeated, resumable, in one report."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from forktail import rundir
from forktail.cli.console import Json, notes, told_clearly
from forktail.cli.kernel import Steps, time_left
from forktail.cli.lab import Cpus, IcountOfRun, Memory, machine_for_run
from forktail.cli.run import RESULTS, conclude_sweep
from forktail.errors import BadInput, ForktailError
from forktail.flavour import flavour_here
from forktail.kernel.build import build
from forktail.kernel.series import no_flavour, read_series
from forktail.lab import registry
from forktail.lab.accelerator import accelerator_for, known_accelerator
from forktail.lab.boot import prepare
from forktail.lab.kernel import LabKernel, find_kernel
from forktail.lab.machine import Machine, check_host_memory
from forktail.lab.run import check_fits
from forktail.lab.sweep_guests import SweepGuests, side_by_side
from forktail.measure.progress import Silence
from forktail.measure.run import measure
from forktail.sweep.plan import COPY_THREADS, LOCAL, Plan, PlannedRun, plan_sweep
from forktail.sweep.sweep import open_sweep, run_sweep
from forktail.workload import assigned_keys, read_workload


class _Bar:
    """One bar over all runs, with those under way beside it; a line a run where there is no terminal."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=notes,
            disable=not notes.is_terminal,
        )
        self._task = self._bar.add_task("sweep", left="")
        self._under_way: list[str] = []
        self._began = monotonic()
        self._made = 0
        self._lock = Lock()

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
        _tell(sentence)

    def spare(self, run: PlannedRun) -> None:
        task = self._bar.tasks[self._task]
        self._bar.update(self._task, total=(task.total or 0) + 1)
        self.tell(f"{run.name} is made too, for a run of {run.cell.name} that is not valid")

    def run(self, run: PlannedRun) -> None:
        with self._lock:
            self._under_way.append(run.name)
            self._bar.update(self._task, description=", ".join(self._under_way))
        if not notes.is_terminal:
            notes.print(f"{run.name} ...")

    def end_run(self, run: PlannedRun, fault: str | None) -> None:
        with self._lock:
            self._under_way.remove(run.name)
            self._made += 1
            self._bar.advance(self._task)
            task = self._bar.tasks[self._task]
            to_make = self._made + (task.total or 0) - task.completed
            left = time_left(monotonic() - self._began, self._made, to_make)
            self._bar.update(self._task, description=", ".join(self._under_way) or "sweep", left=left)
        if not notes.is_terminal:
            self.tell(f"{task.completed:.0f} of {task.total:.0f} runs are made{left and f', {left}'}")
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


def _refuse_lab_options(options: dict[str, object]) -> None:
    """BadInput for an option of the lab's guests where there is none."""
    given = [name for name, value in options.items() if value is not None and value != []]
    if given:
        raise BadInput(
            f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} for guests of the lab, and this sweep "
            "measures this host as it is: give --lab."
        )


def _refuse_other_kernels(wanted: Sequence[str], local: str) -> None:
    """BadInput where `sweep.kernels` has not this host's kernel; what else it names is not measured, and said so."""
    if wanted and local not in wanted:
        raise BadInput(
            f"sweep.kernels names {', '.join(wanted)}, and this host's kernel is {local}: give --lab, boot one of "
            "them, or --set sweep.kernels=[]."
        )
    others = [name for name in wanted if name != local]
    if others:
        _tell(f"Only this host's kernel ({local}) is measured: {', '.join(others)} of sweep.kernels would need --lab.")


def _tell(sentence: str) -> None:
    notes.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _emulates(emulated: bool, machine: Machine) -> bool:
    return emulated or machine.icount


def _check_before_build(
    path: Path,
    assignments: Sequence[str],
    flavours: Sequence[str],
    memory: str | None,
    cpus: int | None,
    icount: bool | None,
) -> None:
    """Refuse what cannot be run, before kernels are built for it.

    Raises BadInput where the guests are too small for a cell, EnvironmentLacks where this host has no memory for one.
    """
    faults: list[ForktailError] = []
    # Whether KVM boots a guest is known for sure once there is a kernel to boot.
    accelerator = known_accelerator()
    for emulated in [True, False] if accelerator is None else [accelerator == "tcg"]:
        machine = machine_for_run(path, partial(_emulates, emulated), memory, cpus, icount=icount)
        try:
            check_host_memory([machine], registry.promised_bytes())
            for cell in plan_sweep(path, assignments, flavours, _emulates(emulated, machine)).cells:
                check_fits(cell.workload, machine)
            return
        except ForktailError as fault:
            faults.append(fault)
    raise faults[0]


def _in_lab(plan: Plan, kernels: dict[str, LabKernel], machine: Machine, directory: Path) -> dict[str, str]:
    for cell in plan.cells:
        check_fits(cell.workload, machine)
    places = side_by_side(machine)
    with _Bar() as bar, ExitStack() as stack:
        if places == 1:
            guests = stack.enter_context(SweepGuests(kernels, machine, bar.tell))
            return run_sweep(plan, directory, guests.measure, _valid, bar)
        prepare(next(iter(kernels.values())), machine, bar.tell)  # An interrupt must be able to end it.
        bar.tell(f"Guests that count instructions: {places} side by side.")
        # Threads end after their guests: the host's kernel would end a guest with the thread that started it.
        threads = stack.enter_context(ThreadPoolExecutor(places))
        guests = stack.enter_context(SweepGuests(kernels, machine, bar.tell))
        return run_sweep(plan, directory, guests.measure, _valid, bar, threads)


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
        if flavours and "sweep.kernels" in assigned_keys(assignments or []):
            raise BadInput("--kernel and --set sweep.kernels both choose the kernels: give one of them.")
        local = flavour_here()
        if lab:
            known = read_series().flavours
            for name in wanted:
                if name not in known:
                    raise no_flavour(name)
            _check_before_build(workload, assignments or [], wanted or known, memory, cpus, icount)
        else:
            no_icount = "--no-icount" if icount is False else "--icount"
            _refuse_lab_options({"--kernel": flavours, "--memory": memory, "--cpus": cpus, no_icount: icount})
            _refuse_other_kernels(wanted, local)
        kernels = _lab_kernels(wanted) if lab else {}

        def emulates(machine: Machine) -> bool:
            return any(accelerator_for(machine, kernel.image) == "tcg" for kernel in kernels.values())

        machine = machine_for_run(workload, emulates, memory, cpus, icount=icount)
        plan = plan_sweep(workload, assignments or [], list(kernels) or [LOCAL], emulates(machine), local)
        if COPY_THREADS in read_workload(workload, assignments or []).sweep.vary and not any(
            cell.copy_threads for cell in plan.cells
        ):
            _tell(f"{COPY_THREADS} is not varied: no kernel of this sweep copies page tables after fork.")
        directory = out or RESULTS / f"{datetime.now():%Y%m%dT%H%M%S}-{plan.name}-sweep"
        open_sweep(plan, directory)
        if lab:
            failed = _in_lab(plan, kernels, machine, directory)
        else:
            failed = _on_this_host(plan, directory)
        conclude_sweep(directory, as_json)
        if failed:
            raise typer.Exit(1)

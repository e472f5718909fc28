# SPDX-License-Identifier: Apache-2.0
"""The plan of a sweep: its cells, and the order in which their runs are made."""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from forktail import rundir
from forktail.errors import BadInput
from forktail.flavour import ASYNC_FORK, DEFAULT
from forktail.workload import Workload, assign, assigned_keys, read_document, refuse_without_effect, validate

LOCAL = "local"
"""The kernel of a sweep without a lab: the one at hand."""

COPY_THREADS = "snapshot.copy_threads"
"""Has an effect where async-fork copies page tables after fork, and nowhere else."""

_VARIED = ("server", "load", "snapshot", "run")
"""The sections whose keys change a run."""

AGAIN = " (again)"
"""Marks the arm that measures a kernel a second time: how far the two differ is the noise floor."""


@dataclass(frozen=True)
class Cell:
    """One combination of what the sweep varies."""

    arm: str
    """The kernel's name in tables; the noise floor's second arm is marked."""
    kernel: str
    values: tuple[tuple[str, Any], ...]
    """What is set besides the kernel: pairs of key and value, in the order of the workload file."""
    workload: Workload
    flavour: str
    """Whose fork the kernel has: its own name but for the kernel at hand."""
    host: str | None = None
    """The host that measures it, where a sweep has several."""

    @property
    def copy_threads(self) -> int | None:
        """How many threads copy page tables after fork; None where their number has no effect."""
        return self.workload.snapshot.copy_threads if _copies_after_fork(self.flavour, self.workload) else None

    @property
    def name(self) -> str:
        """The cell's name in directories, as in `default-again-server.size=1GiB`."""
        parts = [*([self.host] if self.host else []), self.arm, *(f"{key}={value}" for key, value in self.values)]
        return re.sub(r"[^A-Za-z0-9.=_-]+", "-", "-".join(parts).replace(AGAIN, "-again"))


@dataclass(frozen=True)
class PlannedRun:
    """One run of a cell."""

    cell: Cell
    repeat: int

    @property
    def name(self) -> str:
        """The name of its run directory below `runs/`."""
        return f"{self.cell.name}-r{self.repeat}"


@dataclass(frozen=True)
class Plan:
    """A sweep whole; `runs` stand in the order in which they are made, and so do `spares`, which may not be needed."""

    name: str
    repeat: int
    cells: list[Cell]
    runs: list[PlannedRun]
    spares: list[PlannedRun] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The plan as `plan.json`: what a resumed sweep must agree with."""
        return {
            "schema": rundir.PLAN_SCHEMA,
            "name": self.name,
            "repeat": self.repeat,
            "cells": [
                {
                    "name": cell.name,
                    "arm": cell.arm,
                    "kernel": cell.kernel,
                    "values": ({"host": cell.host} if cell.host else {}) | dict(cell.values),
                    "copy_threads": cell.copy_threads,
                    "size_bytes": cell.workload.server.keys * cell.workload.server.value_size,
                    "engine": cell.workload.server.engine,
                    "generator": cell.workload.load.generator,
                    "workload": cell.workload.model_dump(exclude={"sweep"}),
                }
                for cell in self.cells
            ],
            "runs": [
                *({"name": run.name, "cell": run.cell.name, "repeat": run.repeat} for run in self.runs),
                *(
                    {"name": run.name, "cell": run.cell.name, "repeat": run.repeat, "spare": True}
                    for run in self.spares
                ),
            ],
        }


def _copies_after_fork(flavour: str, workload: Workload) -> bool:
    return flavour == ASYNC_FORK and workload.snapshot.fork == "kernel"


def plan_sweep(
    path: Path,
    assignments: Sequence[str],
    kernels: Sequence[str],
    emulated: bool = False,
    local_flavour: str = DEFAULT,
) -> Plan:
    """The plan of a workload file's `[sweep]` over the given kernels; BadInput where a varied value is not valid.

    `emulated` says that the runs are to be on emulated machines, for which the file may have values of their own;
    `local_flavour` says what the kernel LOCAL is. Where `snapshot.copy_threads` has no effect it is not varied: such a
    kernel is measured once for all of its values.
    """
    document = read_document(path, assignments, emulated)
    base = validate(copy.deepcopy(document), f"The workload {path}")
    sweep = base.sweep
    arms = [(kernel, kernel) for kernel in kernels]
    if sweep.noise_floor:
        arms.append((kernels[0] + AGAIN, kernels[0]))

    def vary(values: tuple[tuple[str, Any], ...]) -> Workload:
        varied = copy.deepcopy(document)
        for key, value in values:
            assign(varied, key, value)
        told = ", ".join(f"{key} = {value}" for key, value in values)
        return validate(varied, f"The workload {path}" + (f" with {told}" if told else ""))

    for key, choices in sweep.vary.items():
        if key.partition(".")[0] not in _VARIED:
            raise BadInput(
                f"The workload {path}: sweep.vary.{key} cannot be varied. Vary keys of {', '.join(_VARIED)}."
            )
        twice = [choice for place, choice in enumerate(choices) if choice in choices[:place]]
        if twice or not choices:
            what = f"has {twice[0]!r} twice" if twice else "has no value"
            raise BadInput(f"The workload {path}: sweep.vary.{key} {what}. Give each value once.")
    named = [kernel for place, kernel in enumerate(kernels) if kernel in kernels[:place]]
    if named:
        raise BadInput(f"The kernel {named[0]} is named twice: name each once; sweep.noise_floor measures one again.")
    threads = [(COPY_THREADS, value) for value in sweep.vary.get(COPY_THREADS, [])]
    others = [[(key, value) for value in values] for key, values in sweep.vary.items() if key != COPY_THREADS]
    cells = []
    for values in itertools.product(*others):
        alone = vary(values)
        # Made for their validation too: a fault is told whatever the kernels are.
        threaded = [((*values, pair), vary((*values, pair))) for pair in threads]
        for arm, kernel in arms:
            flavour = local_flavour if kernel == LOCAL else kernel
            chosen = threaded if threaded and _copies_after_fork(flavour, alone) else [(values, alone)]
            cells += [Cell(arm, kernel, pairs, workload, flavour) for pairs, workload in chosen]
    rounds = interleave(cells, sweep.repeat + sweep.spare)
    planned = len(cells) * sweep.repeat
    workloads = [cell.workload for cell in cells]
    refuse_without_effect(assigned_keys(assignments), workloads)
    refuse_without_effect(sweep.vary, workloads, "sweep.vary")
    return Plan(base.name, sweep.repeat, cells, rounds[:planned], rounds[planned:])


def over_hosts(plan: Plan, hosts: Sequence[str]) -> Plan:
    """The plan made on each of the hosts, where a change of kernels costs a boot: one kernel's cells stand together.

    It has no spare runs: each would cost two boots. Of a single host nothing is said: its sweep is as any other.
    """
    arms = list(dict.fromkeys(cell.arm for cell in plan.cells))
    together = [cell for arm in arms for cell in plan.cells if cell.arm == arm]
    names = list(hosts) if len(hosts) > 1 else [None]
    each = [[replace(cell, host=name) for cell in together] for name in names]
    runs = [run for cells in each for run in interleave(cells, plan.repeat)]
    return Plan(plan.name, plan.repeat, [cell for cells in each for cell in cells], runs)


def interleave(cells: Sequence[Cell], repeat: int) -> list[PlannedRun]:
    """Every cell once a round, every other round backwards (ABC CBA ...), so that drift meets all cells alike."""
    runs = []
    for number in range(1, repeat + 1):
        order = cells if number % 2 else list(reversed(cells))
        runs += [PlannedRun(cell, number) for cell in order]
    return runs

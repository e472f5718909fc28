# SPDX-License-Identifier: Apache-2.0
"""One side of a comparison: a sweep's cells with what each of their runs measured, and under what conditions."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from forktail import rundir
from forktail.analysis import analyse
from forktail.analysis.compare.conditions import host_conditions, machine
from forktail.analysis.sweep.cells import METRICS, measured, withheld
from forktail.analysis.sweep.label import settings
from forktail.errors import BadInput
from forktail.flavour import recorded_flavour

Document = dict[str, Any]

_LOCAL = "local"
"""The kernel of a sweep on the kernel at hand: its runs know which it was."""


@dataclass(frozen=True)
class MeasuredRun:
    """A valid run."""

    name: str
    repeat: int
    started: datetime | None
    boot: str | None
    release: str
    machine: str
    values: dict[str, float | None]
    """By name of METRICS."""
    withheld: dict[str, str]
    """Why a figure is null, by name of METRICS: it owes too much to the load generator."""
    conditions: Document
    """By dotted key (`host_conditions`)."""
    probes: Document
    forktail: str | None


@dataclass(frozen=True)
class SideCell:
    """A cell of one side. `planned` is its entry in `plan.json`."""

    planned: Document
    kernel: str
    """The flavour that was measured."""
    runs: list[MeasuredRun]
    """The valid ones, in the order of their repeats."""
    lost: list[str]
    """The others, a phrase each."""

    @property
    def again(self) -> bool:
        """Whether the cell measures its kernel a second time, for the noise floor."""
        return bool(self.planned["arm"] != self.planned["kernel"])

    @property
    def arm(self) -> str:
        """The kernel as tables call it."""
        return self.kernel + " (again)" * self.again

    @property
    def threads(self) -> int | None:
        """The threads that copy after fork; None where their number has no effect."""
        threads = self.planned.get("copy_threads")
        return None if threads is None else int(threads)

    @property
    def setting(self) -> str:
        """What the cell is besides its kernel and threads: equal for equal cells of two sweeps."""
        varied = settings(self.planned)
        return json.dumps([self.planned["engine"], self.planned["size_bytes"], varied], sort_keys=True)


@dataclass(frozen=True)
class Side:
    """A sweep as one side of a comparison."""

    directory: Path
    name: str
    cells: list[SideCell]

    @property
    def kernels(self) -> list[str]:
        """Every name that a kernel of this side can be asked for by."""
        return list(dict.fromkeys(cell.arm for cell in self.cells))


def read_side(directory: Path) -> Side:
    """Read a sweep, of which nothing is written; a finished run without a summary is analysed.

    Raises BadInput where the directory holds no sweep, or a file in it is damaged.
    """
    if (directory / rundir.MANIFEST).exists() and not (directory / rundir.PLAN).exists():
        raise BadInput(
            f"{directory} is a single run, and one run shows nothing of the noise that a change must stand out from: "
            "make a sweep of ten, with `forktail sweep WORKLOAD --set sweep.repeat=10`."
        )
    if not (directory / rundir.PLAN).exists():
        raise BadInput(f"{directory} is no sweep: give a directory that `forktail sweep` wrote.")
    plan = rundir.read_plan(directory)
    try:
        cells = [_cell(directory, planned, plan["runs"]) for planned in plan["cells"]]
        return Side(directory, str(plan["name"]), cells)
    except (KeyError, TypeError, AttributeError) as error:
        raise BadInput(
            f"{directory} has a plan, a summary or an environment that is not as `forktail sweep` writes it "
            f"({type(error).__name__}: {error}): restore it, or sweep again."
        ) from error


def _cell(directory: Path, planned: Document, runs: list[Document]) -> SideCell:
    valid, lost = [], []
    flavours = set()
    for run in runs:
        if run["cell"] != planned["name"]:
            continue
        path = directory / rundir.RUNS / run["name"]
        summary = _summary(path)
        if summary is None:
            lost.append(f"{run['name']} is missing")
            continue
        flavours.add(recorded_flavour(summary["kernel"]["flavour"], str(summary["kernel"]["release"])))
        if not summary["valid"]:
            lost.append(f"{run['name']} is not valid ({' '.join(summary['reasons'])})")
            continue
        valid.append(_run(run, summary, rundir.read_json(path / rundir.ENVIRONMENT)))
    kernel = "/".join(sorted(flavours)) if planned["kernel"] == _LOCAL and flavours else str(planned["kernel"])
    return SideCell(planned, kernel, sorted(valid, key=lambda run: run.repeat), lost)


def _summary(path: Path) -> Document | None:
    if (path / rundir.SUMMARY).exists():
        return rundir.read_json(path / rundir.SUMMARY, rundir.SUMMARY_SCHEMA)
    if (path / rundir.MANIFEST).exists():
        return analyse(path, write=False).document
    return None


def _run(run: Document, summary: Document, environment: Mapping[str, Any]) -> MeasuredRun:
    return MeasuredRun(
        name=run["name"],
        repeat=run["repeat"],
        started=_time(summary["started_at"]),
        boot=(environment.get("kernel") or {}).get("boot_id"),
        release=str(summary["kernel"]["release"]),
        machine=machine(environment),
        values={metric: _value(run["name"], metric, measured(summary, metric)) for metric in METRICS},
        withheld={metric: reason for metric in METRICS if (reason := withheld(summary, metric))},
        conditions=host_conditions(environment, summary["engine"]),
        probes=summary["probes"],
        forktail=summary["forktail"],
    )


def _value(run: str, metric: str, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise TypeError(f"{metric} is {value!r} in {run}")
    return value


def _time(text: str | None) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None

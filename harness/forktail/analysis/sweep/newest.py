# SPDX-License-Identifier: Apache-2.0
"""Which sweep a notebook shows: the newest one, unless it is told."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from forktail import rundir
from forktail.analysis.sweep.cells import Sweep, read_sweep
from forktail.errors import BadInput

RESULTS = "FORKTAIL_RESULTS"
"""The environment's word on where results are: a directory of sweeps, or one sweep."""

REFERENCE = "reference"
"""The sweep that comes with the repository: shown where no other is."""


def newest_sweep(start: Path | None = None) -> tuple[Path, Sweep]:
    """The newest reported sweep in `$FORKTAIL_RESULTS`, else in `results/` of `start` or of a directory above it.

    `start` is the working directory where it is not given. A sweep that came with the repository counts as the oldest.
    Raises BadInput where there is none.
    """
    results = _results(start or Path.cwd())
    if (results / rundir.SWEEP).exists():
        return results, _read(results)
    found = [(_age(path.parent), path.parent) for path in sorted(results.glob(f"*/{rundir.SWEEP}"))]
    if not found:
        raise BadInput(f"{results} holds no sweep that has its report: make one with `make sweep`.")
    directory = max(found)[1]
    return directory, _read(directory)


def _results(start: Path) -> Path:
    told = os.environ.get(RESULTS)
    # A notebook runs in its own directory, whoever set the path set it in another, as a rule above.
    for directory in (start.resolve(), *start.resolve().parents):
        results = directory / (told or "results")
        if results.is_dir():
            return results
    if told:
        raise BadInput(f"{RESULTS} is {told}, which is no directory: give one that holds sweeps, or a sweep.")
    raise BadInput(f"No results/ is in {start} or above it: begin in the repository, or set {RESULTS}.")


def _age(directory: Path) -> tuple[bool, datetime]:
    """What orders sweeps: when their first run began, and last of all the one that came with the repository."""
    started = rundir.read_json(directory / rundir.SWEEP, rundir.SWEEP_SCHEMA).get("started_at")
    epoch = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
    return directory.name != REFERENCE, datetime.fromisoformat(started) if started else epoch


def _read(directory: Path) -> Sweep:
    # A sweep.json may be older than this forktail; from the runs' summaries it is made anew.
    if (directory / rundir.PLAN).exists():
        return read_sweep(directory)
    return Sweep(rundir.read_json(directory / rundir.SWEEP, rundir.SWEEP_SCHEMA))

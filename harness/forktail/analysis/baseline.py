# SPDX-License-Identifier: Apache-2.0
"""Baselines: the sweeps of clean nights, kept for later ones to be compared with; nothing in a store is ever changed.

A store holds `TESTBED/CONFIGURATION/KERNELS/TIME/`: a name given to the hosts, a digest of the sweep's plan, one of the
kernels' builds, and when the sweep was begun. In there is of a sweep what `forktail compare` reads, without raw files.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Any

from forktail import rundir
from forktail.analysis.compare.side import read_side
from forktail.errors import BadInput, GateFailed
from forktail.flavour import recorded_flavour
from forktail.sweep.abridge import write_kept

_SCHEMA = "forktail.baseline/1"
_DOCUMENT = "baseline.json"
_SHORT = 12
_TESTBED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Baseline:
    """A sweep in a store; `kernels` are flavours with their release and build."""

    directory: Path
    kernels: dict[str, str]
    started_at: str


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:_SHORT]


def _plan(sweep: Path) -> dict[str, Any]:
    if not (sweep / rundir.PLAN).exists():
        raise BadInput(f"{sweep} is no sweep: give a directory that `forktail sweep` or playbooks/sweep.yml wrote.")
    return rundir.read_plan(sweep)


def configuration(sweep: Path) -> str:
    """The digest of what a sweep measures: equal for sweeps that can be compared."""
    return _digest(_plan(sweep))


def _place(store: Path, testbed: str, sweep: Path) -> Path:
    if not _TESTBED.fullmatch(testbed):
        raise BadInput(f"{testbed!r} is no name for a testbed: take letters, digits, dots and hyphens.")
    return store / testbed / configuration(sweep)


def newest(store: Path, testbed: str, sweep: Path) -> Baseline | None:
    """The newest baseline of this testbed that measured what the sweep does, of whatever kernels; None for none."""
    found = []
    for path in _place(store, testbed, sweep).glob(f"*/*/{_DOCUMENT}"):
        document = rundir.read_json(path, _SCHEMA)
        found.append(Baseline(path.parent, document["kernels"], document["started_at"]))
    return max(found, key=lambda one: (one.started_at, one.directory.name), default=None)


def promote(store: Path, testbed: str, sweep: Path) -> Baseline:
    """Keep a clean sweep as a baseline; GateFailed where a run of it is missing or not valid."""
    plan, side = _plan(sweep), read_side(sweep)
    lost = [phrase for cell in side.cells for phrase in cell.lost]
    if lost:
        more = f", and {len(lost) - 1} more" if len(lost) > 1 else ""
        raise GateFailed(f"{sweep} is not clean, so it is no baseline: {lost[0]}{more}.")
    kernels = _kernels(sweep, plan)
    began = min(run.started for cell in side.cells for run in cell.runs if run.started)
    final = _place(store, testbed, sweep) / _digest(kernels) / f"{began.astimezone(UTC):%Y%m%dT%H%M%S}"
    if final.exists():
        raise BadInput(f"{final} is there already: a baseline is never replaced.")
    partial = final.with_name(f"{final.name}{rundir.PARTIAL_SUFFIX}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    write_kept(sweep, plan, partial)
    started = began.astimezone(UTC).isoformat(timespec="seconds")
    document = {"schema": _SCHEMA, "testbed": testbed, "kernels": kernels, "started_at": started}
    rundir.write_json(partial / _DOCUMENT, document)
    partial.rename(final)
    return Baseline(final, kernels, started)


def _kernels(sweep: Path, plan: dict[str, Any]) -> dict[str, str]:
    """By flavour, the release and the build that its runs were made on; GateFailed where they were of two."""
    found: dict[str, str] = {}
    for run in plan["runs"]:
        kernel = rundir.read_json(sweep / rundir.RUNS / run["name"] / rundir.ENVIRONMENT)["kernel"]
        told = f"{kernel['release']} {str(kernel.get('version') or '?').split()[0]}"
        flavour = recorded_flavour(kernel["flavour"], kernel["release"])
        if found.setdefault(flavour, told) != told:
            raise GateFailed(
                f"{sweep} measured two builds of {flavour}, {found[flavour]} and {told}, so it is no baseline."
            )
    return dict(sorted(found.items()))

# SPDX-License-Identifier: Apache-2.0
"""Sweeps made by hand: their plan as `forktail sweep` writes it, and of each run what a comparison reads."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from forktail import rundir
from forktail.analysis.sweep.cells import METRICS
from forktail.sweep.plan import PlannedRun, plan_sweep
from forktail.sweep.sweep import open_sweep

Document = dict[str, Any]
Values = dict[str, float]

TYPICAL: Values = {
    "fork_us": 12_000.0,
    "page_table_copy_us": 11_800.0,
    "normal.p99_us": 250.0,
    "normal.max_us": 9_000.0,
    "snapshot.p50_us": 100.0,
    "snapshot.p99_us": 9_000.0,
    "snapshot.max_us": 23_000.0,
    "interruptions": 0.0,
    "interruptions_us": 0.0,
    "out_of_service_us": 12_000.0,
    "window_ms": 1_400.0,
}
NOISY = ("fork_us", "normal.p99_us", "snapshot.p50_us", "snapshot.p99_us", "snapshot.max_us")

BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)
ENVIRONMENT: Document = {
    "schema": "forktail.environment/1",
    "kernel": {"flavour": "default", "release": "6.1.1-forktail-default", "hz": 250, "boot_id": "boot"},
    "cpu": {
        "model": "Xeon",
        "online": "0-7",
        "governor": "performance",
        "mitigations": {"meltdown": "Mitigation: PTI", "spectre_v2": "Mitigation: Retpolines"},
    },
    "memory": {"total_bytes": 32 * 2**30},
    "settings": {"transparent_hugepage": "never"},
    "lab": None,
}


def summary(values: Values, started: datetime, kernel: str) -> Document:
    """The summary of a valid run."""
    document: Document = {
        "schema": rundir.SUMMARY_SCHEMA,
        "forktail": "0.1.0",
        "started_at": started.isoformat(timespec="seconds"),
        "valid": True,
        "reasons": [],
        "kernel": {"flavour": kernel, "release": f"6.1.1-forktail-{kernel}"},
        "engine": {"name": "redis", "version": "7.0.15"},
        "probes": {"fork": "fexit kernel_clone"},
    }
    for metric, value in values.items():
        *sections, last = METRICS[metric]
        place = document
        for section in sections:
            place = place.setdefault(section, {})
        place[last] = value
    return document


Measure = Callable[[PlannedRun], Values]


def sweep(
    directory: Path,
    measure: Measure,
    *,
    workload: str = "[sweep]\nrepeat = 10\nnoise_floor = false",
    kernels: Sequence[str] = ("default",),
    began: datetime = BEGAN,
    apart: timedelta = timedelta(seconds=40),
) -> Path:
    """A whole sweep: run i began `apart` after run i - 1, and measured what `measure` says."""
    path = directory.with_suffix(".toml")
    path.write_text('name = "by-hand"\n' + workload)
    plan = plan_sweep(path, [], kernels)
    open_sweep(plan, directory)
    for place, run in enumerate(plan.runs):
        made = directory / rundir.RUNS / run.name
        made.mkdir()
        values = TYPICAL | measure(run)
        flavour = "default" if run.cell.kernel == "local" else run.cell.kernel
        document = summary(values, began + place * apart, flavour)
        (made / rundir.SUMMARY).write_text(json.dumps(document))
        (made / rundir.ENVIRONMENT).write_text(json.dumps(ENVIRONMENT))
    return directory


def edit(path: Path, change: Callable[[Document], object]) -> None:
    """Change a JSON document where it lies."""
    document = copy.deepcopy(json.loads(path.read_text()))
    change(document)
    path.write_text(json.dumps(document))


def noisy(generator: np.random.RandomState, noise: float, shift: Values | None = None) -> Measure:
    """Runs whose NOISY metrics have that much noise each, and of which some are shifted by a share.

    Without interruptions a server is out of service while it forks, and no longer.
    """

    def measure(_: PlannedRun) -> Values:
        values = {
            metric: TYPICAL[metric] * (1 + (shift or {}).get(metric, 0)) * float(np.exp(noise * deviation))
            for metric, deviation in zip(NOISY, generator.standard_normal(len(NOISY)), strict=True)
        }
        return values | {"out_of_service_us": values["fork_us"]}

    return measure

# SPDX-License-Identifier: Apache-2.0
"""A sweep over hosts: what is left for each of them to do, and the runs that they made brought together.

Whoever drives the hosts, as playbooks/sweep.yml does, makes the runs; this is what it asks before and tells after.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from forktail import rundir
from forktail.errors import BadInput
from forktail.kernel.series import FLAVOURS, no_flavour
from forktail.measure.preflight import disk_needed, memory_needed
from forktail.sweep.plan import Plan, PlannedRun
from forktail.sweep.sweep import finished
from forktail.workload import workload_toml

SCHEMA = "forktail.fleet/1"


@dataclass(frozen=True)
class Leg:
    """Runs of one kernel that a host makes without a boot in between."""

    kernel: str
    runs: list[PlannedRun]


def check_kernels(kernels: Sequence[str]) -> None:
    """BadInput for a kernel that is no flavour."""
    for name in kernels:
        if name not in FLAVOURS:
            raise no_flavour(name)


def check_hosts(hosts: Sequence[str]) -> None:
    """BadInput where the hosts are none, or one is named twice."""
    if not hosts:
        raise BadInput("A sweep over hosts needs one at least: give --host.")
    twice = sorted({host for host in hosts if hosts.count(host) > 1})
    if twice:
        raise BadInput(f"The host {twice[0]} is named twice: name each once.")


def legs(plan: Plan, host: str, directory: Path) -> list[Leg]:
    """What is left for a host to do, in its order."""
    left = [run for run in plan.runs if run.cell.host in (None, host) and not finished(directory, run)]
    return [Leg(kernel, list(runs)) for kernel, runs in groupby(left, key=lambda run: run.cell.kernel)]


def task(plan: Plan, hosts: Sequence[str], directory: Path) -> dict[str, Any]:
    """What is left to do, as `forktail fleet plan --json` prints it (docs/formats.md)."""
    return {
        "schema": SCHEMA,
        "directory": str(directory.resolve()),
        "name": plan.name,
        "runs": len(plan.runs),
        "finished": sum(finished(directory, run) for run in plan.runs),
        "heaviest": max(plan.cells, key=lambda cell: memory_needed(cell.workload) + disk_needed(cell.workload)).name,
        "workloads": {cell.name: workload_toml(cell.workload) for cell in plan.cells},
        "hosts": {
            host: [
                {"kernel": leg.kernel, "runs": [{"name": run.name, "workload": run.cell.name} for run in leg.runs]}
                for leg in legs(plan, host, directory)
            ]
            for host in hosts
        },
    }


def take(directory: Path, name: str, archive: Path) -> Path:
    """Take a run that a host made into the sweep, from a tar of its directory's content; returns where it lies.

    What is no whole run keeps the suffix `.partial`. BadInput where the sweep has no such run, or the tar is damaged.
    """
    plan = rundir.read_plan(directory)
    if name not in [run["name"] for run in plan["runs"]]:
        raise BadInput(f"The sweep {directory} has no run {name}: see its {rundir.PLAN}.")
    final = directory / rundir.RUNS / name
    partial = rundir.begin(final)
    unpacked = subprocess.run(
        ["tar", "-x", "--no-same-owner", "-f", archive, "-C", partial],  # noqa: S607
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if unpacked.returncode != 0:
        raise BadInput(f"{archive} is no whole tar of a run: {unpacked.stderr.strip() or 'tar left no word'}")
    return partial.rename(final) if (partial / rundir.MANIFEST).exists() else partial

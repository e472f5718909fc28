# SPDX-License-Identifier: Apache-2.0
"""The doctor: what this host can measure, with which probe and why no better one, and what is missing."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from forktail.errors import ForktailError
from forktail.measure import load, preflight, probe
from forktail.measure.engine import ENGINES, find_program
from forktail.measure.environment import deviations, environment
from forktail.measure.generator import PEERS
from forktail.measure.native import find_native
from forktail.workload import Load, Server, Workload

_T = TypeVar("_T")


@dataclass(frozen=True)
class Rejection:
    """A better probe that this host refused."""

    probe: str
    errno: int
    why: str


@dataclass(frozen=True)
class Measurement:
    """One measurement and the best probe that attached for it; `probe` is None where none did."""

    name: str
    probe: str | None
    label: str
    rejected: list[Rejection]


@dataclass(frozen=True)
class Diagnosis:
    """What the doctor found; the host can run a workload when `missing` is empty."""

    kernel: dict[str, Any]
    programs: dict[str, str]
    measurements: list[Measurement] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    deviations: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {"schema": "forktail.doctor/1", "able": not self.missing} | asdict(self)


def diagnose() -> Diagnosis:
    """Look at the host without changing it; probes are attached on trial and detached again."""
    missing: list[str] = []

    def attempt(action: Callable[[], _T]) -> _T | None:
        try:
            return action()
        except ForktailError as fault:
            missing.append(str(fault))
            return None

    attempt(preflight.check_root)
    attempt(preflight.check_btf)
    attempt(preflight.check_fork)
    programs = {}
    for name in (load.NAME, probe.NAME):
        path = attempt(partial(find_native, name))
        if path is not None:
            programs[name] = str(path)
    for engine in ENGINES.values():
        wanted = Workload(server=Server(engine=engine.name))
        # A workload that names no engine is of the first; the others are wanted by few.
        if wanted == Workload() or shutil.which(engine.program):
            found = attempt(partial(find_program, wanted))
            if found is not None:
                programs[engine.program] = f"{found.path} {found.version}"
    for name, find in PEERS.items():
        peer = attempt(partial(find, Workload(load=Load(generator=name)))) if shutil.which(name) else None
        if peer is not None:
            programs[name] = f"{peer.path} {peer.version}"
    header = attempt(probe.dry_run) if probe.NAME in programs else None
    measurements = [
        Measurement(
            name=name,
            probe=chosen.get("probe"),
            label=chosen.get("label") or "",
            rejected=[Rejection(**rejection) for rejection in chosen.get("rejected", [])],
        )
        for name, chosen in (header or {"probes": {}})["probes"].items()
    ]
    missing += [
        f"No probe serves {measurement.name}, which every run needs: see the refusals above."
        for measurement in measurements
        if measurement.probe is None and measurement.name in probe.REQUIRED
    ]
    recorded = environment(Path(tempfile.gettempdir()))
    return Diagnosis(recorded["kernel"], programs, measurements, missing, deviations(recorded))

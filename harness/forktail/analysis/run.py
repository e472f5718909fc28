# SPDX-License-Identifier: Apache-2.0
"""A run directory, read whole and verified."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forktail import rundir
from forktail.analysis.clock import ClientClock, move, read_client
from forktail.analysis.closedload import ClosedLoad, read_closed_load
from forktail.analysis.emulation import worth_of_times
from forktail.analysis.eventlog import EventLog, read_event_log
from forktail.analysis.quantity import count_text
from forktail.analysis.querylog import QueryLog, no_queries, read_query_log
from forktail.errors import BadInput

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Marks:
    """The instants of a run that its manifest records, ns."""

    load_start_ns: int
    warmup_end_ns: int
    load_end_ns: int


@dataclass(frozen=True)
class Run:
    """Everything raw that the analysis reads."""

    path: Path
    manifest: Document
    marks: Marks
    load: Document
    probe: Document
    environment: Document
    info: list[Document]
    workload: str
    queries: QueryLog
    """Without a query where the generator is a closed loop."""
    events: EventLog
    closed: ClosedLoad | None = None
    """What a closed loop told of its load; None where the generator is forktail-load."""
    client: Document | None = None
    """What the host told of itself that sent the load; None where that was the server's."""
    clock: ClientClock | None = None
    """Its clock, by which the times of `queries` were moved."""
    info_before: Document = field(default_factory=dict)
    """All of INFO between the fill and the load; empty where it was not kept."""
    info_after: Document = field(default_factory=dict)
    """All of INFO after the load; empty where it was not kept."""

    @property
    def server(self) -> Document:
        return section(self.manifest, "server")

    @property
    def trailer(self) -> Document:
        return section(self.probe, "trailer")

    @property
    def kernel(self) -> Document:
        return section(self.manifest, "kernel")

    @property
    def threads(self) -> int:
        """How many of the server's threads serve clients: one but for KeyDB's."""
        return round(number(self.server, "threads") or 1) if self.server.get("engine") == "keydb" else 1

    @property
    def serving(self) -> frozenset[int] | None:
        """The ids of those threads, as the events call them; None where nobody knows which of all they are."""
        if self.server.get("engine") != "keydb":
            return frozenset((self.events.server,))
        told = self.server.get("serving_tids")
        return frozenset(told) if isinstance(told, list) and told else None

    @property
    def armed(self) -> list[tuple[int, int]]:
        """When the probe's costly programs were attached, ns; empty for runs of before this was recorded."""
        kept = section(self.manifest, "marks").get("armed")
        stretches = [one for one in kept if isinstance(one, dict)] if isinstance(kept, list) else []
        # One without an end lasted until the probe detached, after the load.
        return [(int(one["from_ns"]), int(one.get("until_ns") or self.marks.load_end_ns)) for one in stretches]

    @property
    def load_text(self) -> str:
        """The load in a few words, as in "10,000 queries/s over 50 connections"."""
        over = f"over {count_text(self.queries.connections)} connections"
        if self.closed is None:
            place = f" from {self.client.get('host')}" if self.client else ""
            return f"{count_text(self.queries.rate)} queries/s {over}{place}"
        limit = number(self.load, "rate_wanted")
        rate = f"at most {count_text(limit)} queries/s" if limit else "as fast as replies come"
        return f"{self.closed.generator}, closed loop, {rate} {over}"

    @property
    def emulation(self) -> str | None:
        """What the times of an emulated machine are worth, in a few words; None for any other machine."""
        return worth_of_times([section(self.environment, "lab")])


def section(document: Document, name: str) -> Document:
    """An optional part of a document: empty where it is absent or of another type."""
    part = document.get(name)
    return part if isinstance(part, dict) else {}


def number(document: Document, name: str) -> float | None:
    """An optional number of a document: None where it is absent or of another type."""
    value = document.get(name)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def read_run(path: Path) -> Run:
    """Read a run directory; every fault is a BadInput that names the file and the mend."""
    manifest = rundir.check(path)
    closed = read_closed_load(path / rundir.LOAD)
    queries = no_queries(closed.connections) if closed else read_query_log(path / rundir.QUERY_LOG)
    client, clock = None, None
    if section(manifest, "load").get("host"):
        client, clock = read_client(path / rundir.CLIENT)
        queries = move(queries, clock)
    return Run(
        path=path,
        manifest=manifest,
        marks=_marks(path / rundir.MANIFEST, manifest),
        load=rundir.read_json(path / rundir.LOAD, rundir.CLOSED_LOAD_SCHEMA if closed else rundir.LOAD_SCHEMA),
        probe=rundir.read_json(path / rundir.PROBE, rundir.EVENTS_SCHEMA),
        environment=rundir.read_json(path / rundir.ENVIRONMENT),
        info=_info(path / rundir.INFO),
        workload=_text(path / rundir.WORKLOAD),
        queries=queries,
        events=read_event_log(path / rundir.EVENT_LOG),
        closed=closed,
        client=client,
        clock=clock,
        info_before=_optional(path / rundir.SERVER / rundir.INFO_BEFORE),
        info_after=_optional(path / rundir.SERVER / rundir.INFO_AFTER),
    )


def _optional(path: Path) -> Document:
    return rundir.read_json(path) if path.exists() else {}


def _marks(path: Path, manifest: Document) -> Marks:
    marks = section(manifest, "marks")
    found = {}
    for name in Marks.__dataclass_fields__:
        value = marks.get(name)
        if not isinstance(value, int):
            raise BadInput(f"{path} has no time marks.{name}: restore it, or run again.")
        found[name] = value
    return Marks(**found)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read ({error}): restore it, or run again.") from error


def _info(path: Path) -> list[Document]:
    samples: list[Document] = []
    for index, line in enumerate(_text(path).splitlines(), start=1):
        try:
            sample = json.loads(line)
        except json.JSONDecodeError as error:
            raise BadInput(f"{path}, line {index}, is not JSON ({error.msg}): restore it, or run again.") from error
        if not isinstance(sample, dict) or not isinstance(sample.get("t_ns"), int):
            raise BadInput(f"{path}, line {index}, is no INFO sample with a t_ns: restore it, or run again.")
        samples.append(sample)
    return samples

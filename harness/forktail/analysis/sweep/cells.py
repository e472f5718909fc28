# SPDX-License-Identifier: Apache-2.0
"""The cells of a sweep: what their runs measured, as mean and spread over runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forktail import rundir
from forktail.analysis.emulation import COUNTED, worth_of_times
from forktail.analysis.sweep.answer import answer
from forktail.analysis.sweep.contrast import contrasts
from forktail.flavour import recorded_flavour

Document = dict[str, Any]

FLOOR_BYTES = 16 * 2**20
"""A server with less payload than this is as good as empty: its fork is the floor, what a fork costs without data."""

OPEN_LOOP = "forktail-load"
"""The generator that is no closed loop."""

METRICS: dict[str, tuple[str, ...]] = {
    "fork_us": ("fork", "duration_us"),
    "page_table_copy_us": ("fork", "page_table_copy_us"),
    "normal.p99_us": ("queries", "normal", "p99_us"),
    "normal.max_us": ("queries", "normal", "max_us"),
    "snapshot.p50_us": ("queries", "snapshot", "p50_us"),
    "snapshot.p99_us": ("queries", "snapshot", "p99_us"),
    "snapshot.max_us": ("queries", "snapshot", "max_us"),
    "copy_us": ("flight", "copy_us"),
    "interruptions": ("interruptions", "count"),
    "interruptions_us": ("interruptions", "total_us"),
    "out_of_service_us": ("out_of_service_us",),
    "window_ms": ("window", "duration_ms"),
}
"""Each metric of a cell and where a run's summary holds it. A cell has the mean of the runs' p99s and of their
maxima, never the p99 of pooled queries (P, section 6.1)."""

_NO_SPREAD: Document = {"mean": None, "min": None, "max": None}


@dataclass(frozen=True)
class Sweep:
    """A sweep as `sweep.json` holds it; `document` has nothing but JSON's types."""

    document: Document

    @property
    def cells(self) -> list[Document]:
        return list(self.document["cells"])

    @property
    def closed_loops(self) -> list[str]:
        """The generators of its cells that are closed loops."""
        return sorted({cell["generator"] for cell in self.cells} - {OPEN_LOOP})

    @property
    def closed_loop_text(self) -> str | None:
        """What is to be said of them; None where there are none."""
        if not self.closed_loops:
            return None
        return (
            f"Closed loop: {', '.join(self.closed_loops)}. Such figures leave out the queries that should have been "
            "sent while the server stalled, and must not be compared with those of an open loop."
        )

    @property
    def _labs(self) -> list[Document]:
        """What the environments of the runs in guests tell of these."""
        return [run["lab"] for run in self.document["runs"] if run["lab"]]

    @property
    def emulated(self) -> bool:
        return bool(self.document["emulated"])

    @property
    def emulation(self) -> str | None:
        """What the times of an emulated sweep are worth, in a few words; None for any other."""
        return worth_of_times(self._labs)

    @property
    def emulation_text(self) -> str | None:
        """The same in two sentences."""
        if not self.emulated:
            return None
        times = "times are several times those of a real machine"
        if self.emulation == COUNTED:
            one = all(lab.get("cpus") == 1 for lab in self._labs)
            times = f"{COUNTED}, of {'one CPU' if one else 'CPUs that take turns'}"
        return (
            f"({', '.join(self.document['accelerators'])}): {times}. "
            "Ratios between kernels, and counts, are what to read here."
        )

    @property
    def answer(self) -> str:
        """Which kernel is better at what and what cannot be told apart, in a sentence for each setting."""
        return str(self.document.get("answer") or "")

    @property
    def contrasts(self) -> list[Document]:
        """How the kernels differ, pair by pair (`contrast.Contrast`)."""
        return list(self.document.get("contrasts", []))

    @property
    def valid(self) -> bool:
        """Whether every cell has at least one valid run."""
        return all(cell["valid_runs"] for cell in self.cells)


def read_sweep(directory: Path) -> Sweep:
    """The sweep of a directory whose finished runs all have their summary."""
    plan = rundir.read_plan(directory)
    runs = [_run(directory, run) for run in plan["runs"]]
    cells = [_cell(cell, [run for run in runs if run["cell"] == cell["name"]]) for cell in plan["cells"]]
    for cell in cells:
        cell["fork_above_floor_us"] = _above_floor(cell, cells)
    values = {cell["name"]: _values([run for run in runs if run["cell"] == cell["name"]]) for cell in cells}
    found = [contrast.as_json() for contrast in contrasts(cells, values)]
    labs = [run["lab"] for run in runs if run["lab"]]
    accelerators = sorted({lab["accelerator"] + ", 1 instruction = 1 ns" * bool(lab.get("icount")) for lab in labs})
    return Sweep(
        {
            "schema": rundir.SWEEP_SCHEMA,
            "name": plan["name"],
            "started_at": min((run["started_at"] for run in runs if run["started_at"]), default=None),
            "emulated": any(lab["accelerator"] == "tcg" for lab in labs),
            "accelerators": accelerators,
            "repeat": plan["repeat"],
            "answer": answer(cells, found),
            "contrasts": found,
            "cells": cells,
            "runs": [{key: value for key, value in run.items() if key != "summary"} for run in runs],
        }
    )


def _run(directory: Path, planned: Document) -> Document:
    path = directory / rundir.RUNS / planned["name"]
    missing = {"state": "missing", "valid": False, "reasons": [], "started_at": None, "lab": None, "summary": None}
    run = planned | missing
    if not (path / rundir.SUMMARY).exists():
        return run
    summary = rundir.read_json(path / rundir.SUMMARY, rundir.SUMMARY_SCHEMA)
    environment = rundir.read_json(path / rundir.ENVIRONMENT)
    return run | {
        "state": "finished",
        "valid": summary["valid"],
        "reasons": summary["reasons"],
        "started_at": summary["started_at"],
        "lab": environment.get("lab"),
        "summary": summary,
    }


def _cell(planned: Document, runs: list[Document]) -> Document:
    valid = [run["summary"] for run in runs if run["valid"]]
    releases = sorted({run["summary"]["kernel"]["release"] for run in runs if run["summary"]})
    return {
        "name": planned["name"],
        "arm": planned["arm"],
        "kernel": planned["kernel"],
        "releases": releases,
        "flavours": sorted({_flavour(run["summary"]["kernel"]) for run in runs if run["summary"]}),
        "values": planned["values"],
        "size_bytes": planned["size_bytes"],
        "copy_threads": planned.get("copy_threads"),
        "engine": planned["engine"],
        "generator": planned.get("generator", OPEN_LOOP),
        "runs": len(runs),
        "finished_runs": sum(run["state"] == "finished" for run in runs),
        "valid_runs": len(valid),
        **{metric: _spread(valid, metric) for metric in METRICS},
        "buckets": _buckets(valid),
    }


def _flavour(kernel: Document) -> str:
    return recorded_flavour(kernel["flavour"], str(kernel["release"]))


def measured(summary: Document, metric: str) -> float | None:
    """What a run's summary holds of a metric of METRICS; None where it was not measured."""
    value: Any = summary
    for key in METRICS[metric]:
        # A summary of another version of forktail, or a run without the measurement, lacks a section.
        value = (value or {}).get(key)
    found: float | None = value
    return found


def withheld(summary: Document, metric: str) -> str | None:
    """Why a run's summary has no figure for a latency metric of METRICS; None where it gives no reason."""
    *sections, last = METRICS[metric]
    place: Any = summary
    for key in sections:
        place = (place or {}).get(key)
    reasons = (place if isinstance(place, dict) else {}).get("withheld") or {}
    reason = reasons.get(last.removesuffix("_us"))
    return None if reason is None else str(reason)


def _values(runs: list[Document]) -> dict[str, list[float]]:
    """Of each metric the figure of every valid run that has it."""
    valid = [run["summary"] for run in runs if run["valid"]]
    found = {metric: [measured(summary, metric) for summary in valid] for metric in METRICS}
    return {metric: [value for value in values if value is not None] for metric, values in found.items()}


def _spread(summaries: list[Document], metric: str) -> Document:
    """Mean, least and greatest of the runs that have the figure, how many these are, and why others have none."""
    values = [value for value in (measured(summary, metric) for summary in summaries) if value is not None]
    reasons = [withheld(summary, metric) for summary in summaries if measured(summary, metric) is None]
    spread = dict(_NO_SPREAD)
    if values:
        spread = {"mean": sum(values) / len(values), "min": min(values), "max": max(values)}
    return spread | {"runs": len(values), "withheld": list(dict.fromkeys(reason for reason in reasons if reason))}


def _above_floor(cell: Document, cells: list[Document]) -> Document:
    """The cell's fork without what it costs on the same kernel and setting when the server is as good as empty."""
    floors = [
        other["fork_us"]["mean"]
        for other in cells
        if other["size_bytes"] < FLOOR_BYTES and other["arm"] == cell["arm"] and _setting(other) == _setting(cell)
    ]
    if len(floors) != 1 or floors[0] is None or cell["fork_us"]["mean"] is None or cell["size_bytes"] < FLOOR_BYTES:
        return _NO_SPREAD | {"runs": 0, "withheld": []}
    return {**cell["fork_us"]} | {key: cell["fork_us"][key] - floors[0] for key in _NO_SPREAD}


def _setting(cell: Document) -> Document:
    return {key: value for key, value in cell["values"].items() if key != "server.size"}


def _buckets(summaries: list[Document]) -> list[Document]:
    """The interruptions of all valid runs in bcc's log2 buckets, a run's mean count each."""
    counts: Counter[tuple[int, int]] = Counter()
    for summary in summaries:
        for bucket in summary["interruptions"]["buckets"]:
            counts[bucket["low_us"], bucket["high_us"]] += bucket["count"]
    return [
        {"low_us": low, "high_us": high, "count": count / len(summaries)}
        for (low, high), count in sorted(counts.items())
    ]

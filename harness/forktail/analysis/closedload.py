# SPDX-License-Identifier: Apache-2.0
"""The load of a closed-loop generator: no query log, but what the generator told of whole intervals of time.

Its classes are of intervals and by completion, and so not those of P; docs/analysis.md says what they are worth.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from forktail import rundir
from forktail.analysis.classify import NORMAL, SNAPSHOT, WARMUP
from forktail.analysis.statistics import PERCENTS, rank
from forktail.errors import BadInput

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClosedLoad:
    """What `load.json` of a closed loop holds; parallel arrays have an element an interval, in the order of time."""

    generator: str
    version: str
    connections: int
    start_ns: int
    end_ns: int
    completed: int
    errors: int
    lost: int
    """Connections that broke."""
    whole_run_us: Mapping[str, float | None] | None
    """Of the whole run, by the names of PERCENTS and `max`; None where the intervals' histograms tell it."""
    percentiles_are: str
    """How exact they are, in a few words."""
    notes: list[str]
    error_ns: int
    """How far an interval's edges may be off."""
    starts_ns: Int64
    ends_ns: Int64
    counts: Int64
    max_us: npt.NDArray[np.float64]
    """NaN where nothing was answered."""
    points: list[list[tuple[float, int]]] | None
    """Of each interval pairs of a latency, us, and how many queries took at most that, ascending; None where untold."""

    def classes(self, windows: Iterable[tuple[int, int]], warmup_end_ns: int) -> npt.NDArray[np.uint8]:
        """The class of each interval.

        One that touches a window, its own error included, is the snapshot's, one that began in the warm-up the
        warm-up's, and any other normal.
        """
        classes = np.full(len(self.counts), NORMAL, dtype=np.uint8)
        classes[self.starts_ns < warmup_end_ns] = WARMUP
        for start, end in windows:
            touches = (self.starts_ns - self.error_ns <= end) & (self.ends_ns + self.error_ns >= start)
            classes[touches & (classes != WARMUP)] = SNAPSHOT
        return classes

    def latency_us(self, chosen: npt.NDArray[np.bool_]) -> dict[str, float | None]:
        """The percentiles and the maximum of the chosen intervals; None what cannot be told of them."""
        found: dict[str, float | None] = dict.fromkeys([*PERCENTS, "max"])
        answered = chosen & (self.counts > 0)
        if not answered.any():
            return found
        found["max"] = float(self.max_us[answered].max())
        if self.points is not None:
            histograms = [self.points[index] for index in np.flatnonzero(answered)]
            found |= {name: _quantile(histograms, percent) for name, percent in PERCENTS.items()}
        return found

    def whole(self) -> dict[str, float | None]:
        """The percentiles and the maximum of the whole run, its warm-up included."""
        if self.whole_run_us is not None:
            return dict(self.whole_run_us)
        return self.latency_us(np.ones(len(self.counts), dtype=np.bool_))


def _quantile(histograms: list[list[tuple[float, int]]], percent: str) -> float:
    """The least latency that is known not to be exceeded by that share of the queries of all histograms."""
    latencies = np.unique([latency for histogram in histograms for latency, _ in histogram])
    known = np.zeros(len(latencies), dtype=np.int64)
    for histogram in histograms:
        edges = np.array([latency for latency, _ in histogram])
        counts = np.array([0, *(count for _, count in histogram)], dtype=np.int64)
        known += counts[np.searchsorted(edges, latencies, side="right")]
    return float(latencies[np.searchsorted(known, rank(int(known[-1]), percent), side="left")])


def read_closed_load(path: Path) -> ClosedLoad | None:
    """The load of a `load.json` of a closed loop, None where it is of forktail-load; every fault is a BadInput."""
    document = rundir.read_json(path)
    if document.get("schema") != rundir.CLOSED_LOAD_SCHEMA:
        return None
    try:
        return _closed_load(document)
    except (KeyError, TypeError, ValueError) as error:
        raise BadInput(
            f"{path} is not as a run writes it ({type(error).__name__}: {error}): restore it, or run again."
        ) from error


def _closed_load(document: Mapping[str, Any]) -> ClosedLoad:
    intervals = sorted(document["intervals"], key=lambda interval: int(interval["start_ns"]))

    def column(name: str) -> Int64:
        return np.array([int(interval[name]) for interval in intervals], dtype=np.int64)

    told = [interval["points"] for interval in intervals]
    whole = document["latency_us"]
    counts, slowest = column("count"), [interval["max_us"] for interval in intervals]
    if (counts < 0).any() or any((most is None) != (count == 0) for most, count in zip(slowest, counts, strict=True)):
        raise ValueError("an interval contradicts itself on whether a query was answered in it")
    return ClosedLoad(
        generator=str(document["generator"]),
        version=str(document["version"]),
        connections=int(document["connections"]),
        start_ns=int(document["start_ns"]),
        end_ns=int(document["end_ns"]),
        completed=int(document["completed"]),
        errors=int(document["errors"]),
        lost=int(document["lost"]),
        whole_run_us=None if whole is None else {name: whole[name] for name in [*PERCENTS, "max"]},
        percentiles_are=str(document["percentiles_are"]),
        notes=[str(note) for note in document["notes"]],
        error_ns=int(document["interval_error_ns"]),
        starts_ns=column("start_ns"),
        ends_ns=column("end_ns"),
        counts=counts,
        max_us=np.array([np.nan if most is None else float(most) for most in slowest]),
        points=None
        if any(points is None for points in told)
        else [[(float(latency), int(count)) for latency, count in points] for points in told],
    )

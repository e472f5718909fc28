# SPDX-License-Identifier: Apache-2.0
"""What the analysis derives from a run: windows, classes, sorted latencies and causes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forktail.analysis.attribute import (
    CAUSES,
    PARTS,
    Attribution,
    Stalls,
    attribute,
    baseline,
    causes,
)
from forktail.analysis.classify import NORMAL, SNAPSHOT, WARMUP, classify
from forktail.analysis.eventlog import Events, Kind
from forktail.analysis.forks import unmeasured_allowance
from forktail.analysis.lag_effect import LagEffect, lag_effects
from forktail.analysis.querylog import ERROR, NEVER, OK
from forktail.analysis.run import Run, number, section
from forktail.analysis.saturation import Saturation, saturation
from forktail.analysis.statistics import rank
from forktail.analysis.window import Snapshot, snapshots

Int64 = npt.NDArray[np.int64]

NO_CAUSE = len(CAUSES)
"""The cause of a query without a reply."""

OWED = ("client_lag", "behind_client_lag")
"""The parts of a latency that are the generator's: its own lateness, and the queue of the burst that follows."""

BANDS = ("50", "90", "99", "99.9")
"""The percentiles of snapshot latency between which the split is averaged."""

SLOWEST = 10


@dataclass(frozen=True)
class Tail:
    """The split of snapshot latencies, by band of latency."""

    edges_ns: list[int]
    """The latencies at BANDS; a query at an edge belongs to the slower band."""
    queries: Int64
    """Queries per band, shape (len(BANDS) + 1,)."""
    parts_ns: Int64
    """Summed parts per band, shape (len(BANDS) + 1, len(PARTS))."""
    dominant: Int64
    """Queries of the slowest 1 % by cause, shape (len(CAUSES),)."""
    slowest: Int64
    """Indices of the slowest snapshot queries in the query log, slowest first."""
    slowest_parts: Int64
    """Their parts, shape (queries, len(PARTS))."""


@dataclass(frozen=True)
class Result:
    """A run and everything derived from it that figures and summaries share."""

    run: Run
    snapshots: list[Snapshot]
    classes: npt.NDArray[np.uint8]
    sorted_ns: dict[int, Int64]
    """Ascending latencies of the ok queries, by class."""
    sorted_lag_ns: dict[int, Int64]
    """Ascending send lags of the ok queries, by class."""
    cause: npt.NDArray[np.uint8]
    """Per query an index of CAUSES, or NO_CAUSE."""
    tail: Tail | None
    """None where no snapshot query was answered."""
    base_ns: int
    interruptions: Events
    """The parent's page-table copies within a window and outside its fork."""
    interval_classes: npt.NDArray[np.uint8]
    """The class of each interval of a closed loop's load; empty for any other."""
    owed_ns: Int64
    """Per query the part of its latency that is the generator's; 0 without a reply."""
    lag_effects: dict[int, dict[str, LagEffect]]
    """By class, and by the names of FIGURES: what the generator's lateness did to the figure."""
    saturation: Saturation | None
    """None for a closed loop's load."""


def derive(run: Run) -> Result:
    """Windows, classes, percentiles' basis and causes of a run."""
    queries = run.queries
    last_ns = max(run.marks.load_end_ns, int(queries.intended_ns[-1]) if len(queries) else 0)
    forks = snapshots(run.events, last_ns, unmeasured_allowance(run))
    windows = [(fork.start_ns, fork.end_ns) for fork in forks]
    error_ns = run.clock.error_ns if run.clock else 0
    classes = classify(queries.intended_ns, windows, run.marks.warmup_end_ns, error_ns, run.armed)
    of_intervals = run.closed.classes(windows, run.marks.warmup_end_ns) if run.closed else np.empty(0, dtype=np.uint8)
    ok = queries.status == OK
    sorted_ns, sorted_lag_ns = {}, {}
    for name in (NORMAL, SNAPSHOT):
        chosen = ok & (classes == name)
        sorted_ns[name] = np.sort(queries.latency_ns[chosen])
        sorted_lag_ns[name] = np.sort(queries.client_lag_ns[chosen])

    normal = ok & (classes == NORMAL)
    base = baseline(queries, normal if normal.any() else ok & (classes != WARMUP))
    # Which of KeyDB's threads serves a connection is not known, so a stall of any of them counts for all.
    threads = run.serving
    replied = queries.status <= ERROR
    split = attribute(queries, replied, base, Stalls(run.events, threads), normal, run.threads)
    cause, owed, tail = _causes(run, classes, ok, replied, sorted_ns[SNAPSHOT], split)
    effects = {
        number: lag_effects(queries.latency_ns[chosen], owed[chosen])
        for number in (NORMAL, SNAPSHOT)
        for chosen in [ok & (classes == number)]
    }

    interruptions = run.events.of(Kind.INTERRUPTION)
    within = np.zeros(len(interruptions), dtype=np.bool_)
    for fork in forks:
        within |= (interruptions["start"] >= fork.fork_end_ns) & (interruptions["start"] <= fork.end_ns)
    kept_up = None
    if run.closed is None:
        order = slice(None) if replied.all() and (np.diff(split.sent_ns) >= 0).all() else np.argsort(split.sent_ns)
        idle_us = number(section(run.load, "idle_us"), "p50")
        kept_up = saturation(
            split.sent_ns[order],
            split.completed_ns[order],
            normal[replied][order],
            windows,
            base,
            None if idle_us is None else round(idle_us * 1000),
        )
    return Result(
        run=run,
        snapshots=forks,
        classes=classes,
        sorted_ns=sorted_ns,
        sorted_lag_ns=sorted_lag_ns,
        cause=cause,
        tail=tail,
        base_ns=base,
        interruptions=interruptions[within],
        interval_classes=of_intervals,
        owed_ns=owed,
        lag_effects=effects,
        saturation=kept_up,
    )


def _causes(
    run: Run,
    classes: npt.NDArray[np.uint8],
    ok: npt.NDArray[np.bool_],
    replied: npt.NDArray[np.bool_],
    latencies: Int64,
    split: Attribution,
) -> tuple[npt.NDArray[np.uint8], Int64, Tail | None]:
    """Each query's cause and what it owes to the generator, ns, and the split of the slow snapshot queries."""
    queries = run.queries
    rows = np.flatnonzero(replied)
    cause = np.full(len(queries), NO_CAUSE, dtype=np.uint8)
    edges = [int(latencies[rank(len(latencies), percent) - 1]) for percent in BANDS] if len(latencies) else []
    owed = np.zeros(len(queries), dtype=np.int64)
    generators = [PARTS.index(part) for part in OWED]
    counts = np.zeros(len(BANDS) + 1, dtype=np.int64)
    sums = np.zeros((len(BANDS) + 1, len(PARTS)), dtype=np.int64)
    dominant = np.zeros(len(CAUSES), dtype=np.int64)
    in_tail = BANDS.index("99") + 1
    for piece, parts in split.chunks():
        chunk = rows[piece]
        dominating = causes(parts)
        cause[chunk] = dominating
        owed[chunk] = parts[generators].sum(axis=0)
        snapshot = np.flatnonzero(ok[chunk] & (classes[chunk] == SNAPSHOT))
        if not len(snapshot):
            continue
        band = np.searchsorted(edges, queries.latency_ns[chunk[snapshot]], side="right")
        counts += np.bincount(band, minlength=len(counts))
        dominant += np.bincount(dominating[snapshot[band >= in_tail]], minlength=len(dominant))
        for index in range(len(counts)):
            sums[index] += parts[:, snapshot[band == index]].sum(axis=1)
    if not len(latencies):
        return cause, owed, None
    # Only queries of the tail can be among the slowest; ties keep the order of arrival.
    latency = np.where(ok & (classes == SNAPSHOT), queries.latency_ns, -1)
    floor = latencies[-min(SLOWEST, len(latencies))]
    candidates = np.flatnonzero(latency >= floor)
    slowest = candidates[np.argsort(-latency[candidates], kind="stable")][:SLOWEST]
    parts = split.split(np.searchsorted(rows, slowest))
    return cause, owed, Tail(edges, counts, sums, dominant, slowest, parts.T)


def sent_lags(result: Result) -> Int64:
    """The generator's send lags of all measured queries that were sent, whatever became of them."""
    queries = result.run.queries
    lags: Int64 = queries.client_lag_ns[(queries.lag_ns != NEVER) & (result.classes != WARMUP)]
    return lags

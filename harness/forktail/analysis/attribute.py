# SPDX-License-Identifier: Apache-2.0
"""The cause of each query's latency: a split into parts that sum to it exactly (docs/analysis.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forktail.analysis.backlog import Backlog, envelope, owed, round_work, service_time, steps
from forktail.analysis.eventlog import EventLog, Events, Kind, ends
from forktail.analysis.querylog import ERROR, QueryLog
from forktail.analysis.statistics import percentiles

Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]

STALLS = ("fork", "run_queue", "blocked", "interruption", "cow_fault")
"""What keeps the server from serving. Where two coincide the time is the first one's, so none is counted twice."""

DELAYS = ("client_lag", *STALLS)
"""What work queues behind: the server's stalls, and the generator's lateness, as what it sends late comes as a
burst."""

PARTS = (*DELAYS, *(f"behind_{delay}" for delay in DELAYS), "service", "unexplained")
CAUSES = (*DELAYS, "service", "unexplained")
"""What can dominate a query: a delay counts together with the queueing behind it."""

_LAG, _STALL, _BEHIND_LAG, _BEHIND = 0, 1, len(DELAYS), len(DELAYS) + 1
_SERVICE, _UNEXPLAINED = len(PARTS) - 2, len(PARTS) - 1
_CHUNK = 1 << 16


class Stalls:
    """The server's stalls as adjoining segments, each of one kind, with the time of each kind up to any instant."""

    def __init__(self, log: EventLog, threads: frozenset[int] | None = None) -> None:
        """Take the stalls of the given threads, those that serve queries; None stands for all threads.

        Fork stops them all, whichever thread forks.
        """
        kinds = (Kind.RUN_QUEUE, Kind.BLOCKED, Kind.INTERRUPTION, Kind.FAULT)
        events = [log.of(Kind.FORK), *(_of_threads(log.of(kind), threads) for kind in kinds)]
        # Events of no length contribute no time, and would only make empty segments.
        events = [chosen[chosen["duration"] > 0] for chosen in events]
        edges = np.concatenate([side.astype(np.int64) for chosen in events for side in (chosen["start"], ends(chosen))])
        order = np.argsort(edges, kind="stable")
        self.edges: Int64 = edges[order]
        self.kind = np.full(len(edges), -1, dtype=np.int8)
        """The kind of the segment that begins at each edge, as an index of STALLS; -1 where the server could serve."""
        first = 0
        for index, chosen in enumerate(events):
            step = np.zeros(len(edges), dtype=np.int32)
            step[first : first + len(chosen)] = 1
            step[first + len(chosen) : first + 2 * len(chosen)] = -1
            first += 2 * len(chosen)
            covered = np.cumsum(step[order]) > 0
            self.kind[covered & (self.kind < 0)] = index
        lengths = np.diff(self.edges, append=self.edges[-1:])
        self._elapsed = [
            np.concatenate(([0], np.cumsum(np.where(self.kind == index, lengths, 0)))) for index in range(len(STALLS))
        ]

    def segment(self, times: Int64) -> Int64:
        """How many edges lie at or before each time; the last of them begins the segment that the time is in."""
        return np.searchsorted(self.edges, times, side="right")

    def elapsed(self, stall: int, times: Int64, segment: Int64) -> Int64:
        """The time of one kind of stall from the beginning until each time."""
        before = np.maximum(segment - 1, 0)
        inside = (segment > 0) & (self.kind[before] == stall)
        return self._elapsed[stall][before] + np.where(inside, times - self.edges[before], 0)

    def begun(self, stall: int, segment: Int64) -> Int64:
        """The time of one kind of stall from the beginning until each time, a stall in progress counting as a whole."""
        return self._elapsed[stall][segment]


def _of_threads(events: Events, threads: frozenset[int] | None) -> Events:
    return events if threads is None else events[np.isin(events["tid"], list(threads))]


@dataclass(frozen=True)
class Attribution:
    """The split of the latency of every query that got a reply."""

    stalls: Stalls
    base_ns: int
    """The most that counts as service."""
    sent_ns: Int64
    completed_ns: Int64
    lag_ns: Int64
    backlog: Backlog
    """What of the backlog that each query met is owed to which cause."""

    def split(self, rows: slice | Int64) -> Int64:
        """The parts of the chosen queries, shape (len(PARTS), queries), ns: each column sums to the latency."""
        sent, completed = self.sent_ns[rows], self.completed_ns[rows]
        parts = np.zeros((len(PARTS), len(sent)), dtype=np.int64)
        parts[_LAG] = self.lag_ns[rows]
        excess = completed - sent
        owed = self.backlog.stalls_ns[rows]
        if len(self.stalls.edges):
            since, until = self.stalls.segment(sent), self.stalls.segment(completed)
            touched = np.flatnonzero((since != until) | (self.stalls.kind[np.maximum(until - 1, 0)] >= 0) | (owed > 0))
            if len(touched):
                parts[:, touched] += self._stalled(
                    sent[touched],
                    completed[touched],
                    since[touched],
                    until[touched],
                    owed[touched],
                    self.backlog.kinds[:, self.backlog.column[rows][touched]],
                )
                excess -= parts[_STALL:_BEHIND_LAG].sum(axis=0) + parts[_BEHIND:_SERVICE].sum(axis=0)
        parts[_BEHIND_LAG] = np.minimum(np.maximum(excess - self.base_ns, 0), self.backlog.client_lag_ns[rows])
        excess -= parts[_BEHIND_LAG]
        parts[_SERVICE] = np.minimum(excess, self.base_ns)
        parts[_UNEXPLAINED] = excess - parts[_SERVICE]
        return parts

    def _stalled(self, sent: Int64, completed: Int64, since: Int64, until: Int64, owed: Int64, kinds: Float32) -> Int64:
        """The stalls of queries and the queueing behind them; the other parts stay zero."""
        parts = np.zeros((len(PARTS), len(sent)), dtype=np.int64)
        weights = np.empty((len(STALLS), len(sent)))
        for index in range(len(STALLS)):
            until_sent = self.stalls.elapsed(index, sent, since)
            parts[_STALL + index] = self.stalls.elapsed(index, completed, until) - until_sent
            # What is left of a stall in progress is in the backlog, and delays the query directly.
            left = self.stalls.begun(index, since) - until_sent
            owed = owed - left
            np.maximum(kinds[index] - left, 0, out=weights[index])
        beyond = completed - sent - parts.sum(axis=0) - self.base_ns
        waited = np.maximum(np.minimum(beyond, owed), 0)
        total = weights.sum(axis=0)
        share = np.floor(weights / np.where(total > 0, total, 1) * waited).astype(np.int64)
        largest = weights.argmax(axis=0)[None]
        rest = waited - share.sum(axis=0) + np.take_along_axis(share, largest, 0)[0]
        np.put_along_axis(share, largest, rest[None], 0)
        parts[_BEHIND:_SERVICE] = share
        return parts

    def chunks(self) -> Iterator[tuple[slice, Int64]]:
        """All queries in pieces that fit the cache, each with its parts."""
        for first in range(0, len(self.sent_ns), _CHUNK):
            rows = slice(first, min(first + _CHUNK, len(self.sent_ns)))
            yield rows, self.split(rows)


def causes(parts: Int64) -> npt.NDArray[np.uint8]:
    """The index into CAUSES of the greatest part of each column, a delay together with the queueing behind it."""
    joined = np.concatenate((parts[:_BEHIND_LAG] + parts[_BEHIND_LAG:_SERVICE], parts[_SERVICE:]))
    greatest: npt.NDArray[np.uint8] = joined.argmax(axis=0).astype(np.uint8)
    return greatest


def _backlog(
    sent: Int64,
    completed: Int64,
    lag: Int64,
    base_ns: int,
    stalls: Stalls,
    ordinary: npt.NDArray[np.bool_],
    threads: int,
) -> Backlog:
    """What each query's backlog is owed to; all arrays in the order of sending."""
    count = len(sent)
    if not count:
        return Backlog(sent, np.zeros(0, dtype=np.int32), np.zeros((len(STALLS), 1), dtype=np.float32), sent)

    def begun(pairs: Int64) -> Float32:
        """The time of the stalls of each kind that began between the chosen queries and the one behind each."""
        since, until = stalls.segment(sent[pairs]), stalls.segment(sent[pairs + 1])
        of_kinds = [stalls.begun(index, until) - stalls.begun(index, since) for index in range(len(STALLS))]
        return np.array(of_kinds, dtype=np.float32).reshape(len(STALLS), len(pairs))

    observed, stalled = completed - sent, np.zeros(count - 1, dtype=np.int64)
    observed -= base_ns
    for first in range(0, count if len(stalls.edges) else 0, _CHUNK):
        rows = slice(first, first + _CHUNK)
        since = stalls.segment(sent[first : first + _CHUNK + 1])
        until = stalls.segment(completed[rows])
        later = np.zeros(len(until), dtype=np.int64)
        for index in range(len(STALLS)):
            so_far = stalls.begun(index, since)
            stalled[rows] += np.diff(so_far)
            later += stalls.elapsed(index, completed[rows], until) - so_far[: len(until)]
        observed[rows] -= np.maximum(later, 0)
    np.maximum(observed, 0, out=observed)
    service = service_time(observed, stalled, sent, completed, lag, base_ns, threads)
    # Replies of several threads come close together without a round.
    queued = observed.copy()
    worked = round_work(observed, completed, service) if threads == 1 else np.zeros_like(observed)
    queued -= worked
    greatest = envelope(queued, threads)
    found, bound = steps(greatest, worked, stalled, sent, base_ns, ordinary)
    del worked
    of_busiest = owed(greatest, found, bound, stalled, begun, lag)
    del found, greatest
    # The rest of a round of the event loop is owed to what made the backlog that the round works off.
    scale = observed / np.maximum(queued, 1)
    return Backlog(
        (np.minimum(of_busiest.stalls_ns, queued) * scale).astype(np.int64),
        of_busiest.column,
        of_busiest.kinds,
        (np.minimum(of_busiest.client_lag_ns, queued) * scale).astype(np.int64),
    )


def attribute(
    queries: QueryLog,
    replied: npt.NDArray[np.bool_],
    base_ns: int,
    stalls: Stalls,
    ordinary: npt.NDArray[np.bool_] | None = None,
    threads: int = 1,
) -> Attribution:
    """Prepare the split of the queries chosen by `replied`, all of which must have a reply.

    `base_ns` is the run's ordinary time from sending to reply; see `baseline`. The `ordinary` queries, those of the
    normal class, show how much a backlog may change from one query to the next; None stands for all. So many `threads`
    serve.
    """
    if (queries.status[replied] > ERROR).any():
        raise ValueError("a query without a reply has no latency to split")
    # As a rule every query has its reply, and then nothing need be copied.
    chosen = slice(None) if replied.all() else replied
    lag, intended = queries.client_lag_ns[chosen], queries.intended_ns[chosen]
    sent, completed = intended + lag, intended + queries.latency_ns[chosen]
    ordinary = np.ones(len(sent), dtype=np.bool_) if ordinary is None else ordinary[chosen]
    if (sent[1:] >= sent[:-1]).all():
        backlog = _backlog(sent, completed, lag, base_ns, stalls, ordinary, threads)
    else:
        order = np.argsort(sent, kind="stable")
        in_order = _backlog(sent[order], completed[order], lag[order], base_ns, stalls, ordinary[order], threads)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        backlog = in_order.taken(place)
    return Attribution(stalls, base_ns, sent, completed, lag, backlog)


def baseline(queries: QueryLog, normal: npt.NDArray[np.bool_]) -> int:
    """The median time from sending to reply of the chosen queries, ns; 0 when there are none."""
    if not normal.any():
        return 0
    return percentiles((queries.latency_ns - queries.client_lag_ns)[normal], ["50"])[0]

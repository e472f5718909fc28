# SPDX-License-Identifier: Apache-2.0
"""The cause of each query's latency: a split into parts that sum to it exactly (docs/analysis.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forktail.analysis.eventlog import EventLog, Events, Kind, ends
from forktail.analysis.querylog import ERROR, QueryLog
from forktail.analysis.statistics import percentiles

Int64 = npt.NDArray[np.int64]

STALLS = ("fork", "run_queue", "blocked", "interruption", "cow_fault")
"""What keeps the server from serving. Where two coincide the time is the first one's, so none is counted twice."""

PARTS = ("client_lag", *STALLS, *(f"behind_{stall}" for stall in STALLS), "service", "unexplained")
CAUSES = ("client_lag", *STALLS, "service", "unexplained")
"""What can dominate a query: a stall counts together with the queueing behind it."""

_LAG, _STALL, _BEHIND = 0, 1, 1 + len(STALLS)
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
    pile_ns: Int64
    """The last instant not after the sending at which no pile-up was left."""

    def split(self, rows: slice | Int64) -> Int64:
        """The parts of the chosen queries, shape (len(PARTS), queries), ns: each column sums to the latency."""
        sent, completed, pile = self.sent_ns[rows], self.completed_ns[rows], self.pile_ns[rows]
        parts = np.zeros((len(PARTS), len(sent)), dtype=np.int64)
        parts[_LAG] = self.lag_ns[rows]
        excess = completed - sent
        if len(self.stalls.edges):
            since, until = self.stalls.segment(pile), self.stalls.segment(completed)
            touched = np.flatnonzero((since != until) | (self.stalls.kind[np.maximum(until - 1, 0)] >= 0))
            if len(touched):
                parts[:, touched] += self._stalled(
                    sent[touched], completed[touched], pile[touched], since[touched], until[touched]
                )
                excess -= parts[_STALL : _BEHIND + len(STALLS)].sum(axis=0)
        parts[_SERVICE] = np.minimum(excess, self.base_ns)
        parts[_UNEXPLAINED] = excess - parts[_SERVICE]
        return parts

    def _stalled(self, sent: Int64, completed: Int64, pile: Int64, since: Int64, until: Int64) -> Int64:
        """The stalls of queries and the queueing behind them; the other parts stay zero."""
        parts = np.zeros((len(PARTS), len(sent)), dtype=np.int64)
        at_sent = self.stalls.segment(sent)
        piled = np.empty((len(STALLS), len(sent)), dtype=np.int64)
        for index in range(len(STALLS)):
            to_end = self.stalls.elapsed(index, completed, until)
            parts[_STALL + index] = to_end - self.stalls.elapsed(index, sent, at_sent)
            piled[index] = to_end - self.stalls.elapsed(index, pile, since)
        total = piled.sum(axis=0)
        excess = completed - sent - parts.sum(axis=0)
        # A stall of length S piles up work that takes less than S to serve, unless the server is overloaded anyway.
        waited = np.minimum(np.maximum(excess - self.base_ns, 0), total)
        share = np.floor(piled / np.maximum(total, 1) * waited).astype(np.int64)
        largest = piled.argmax(axis=0)[None]
        rest = waited - share.sum(axis=0) + np.take_along_axis(share, largest, 0)[0]
        np.put_along_axis(share, largest, rest[None], 0)
        parts[_BEHIND : _BEHIND + len(STALLS)] = share
        return parts

    def chunks(self) -> Iterator[tuple[slice, Int64]]:
        """All queries in pieces that fit the cache, each with its parts."""
        for first in range(0, len(self.sent_ns), _CHUNK):
            rows = slice(first, min(first + _CHUNK, len(self.sent_ns)))
            yield rows, self.split(rows)


def causes(parts: Int64) -> npt.NDArray[np.uint8]:
    """The index into CAUSES of the greatest part of each column, a stall together with the queueing behind it."""
    joined = np.concatenate(
        (
            parts[:_STALL],
            parts[_STALL:_BEHIND] + parts[_BEHIND : _BEHIND + len(STALLS)],
            parts[_SERVICE:],
        )
    )
    greatest: npt.NDArray[np.uint8] = joined.argmax(axis=0).astype(np.uint8)
    return greatest


def pile_starts(sent_ns: Int64, completed_ns: Int64, base_ns: int) -> Int64:
    """For each query the latest time, not after its sending, at which a sent query met no pile-up.

    A query met none when nothing else was outstanding as it was sent, or when the server answered it within `base_ns`.
    """
    order = np.argsort(sent_ns, kind="stable")
    # Millions of queries: each array more would cost as much as the work on it, so these two are used again.
    starts, done = sent_ns[order], completed_ns[order]
    clear = done - starts <= base_ns
    np.maximum.accumulate(done, out=done)
    clear[:1] = True
    clear[1:] |= done[:-1] <= starts[1:]
    starts[~clear] = -1
    np.maximum.accumulate(starts, out=starts)
    done[order] = starts
    return done


def attribute(queries: QueryLog, replied: npt.NDArray[np.bool_], base_ns: int, stalls: Stalls) -> Attribution:
    """Prepare the split of the queries chosen by `replied`, all of which must have a reply.

    `base_ns` is the run's ordinary time from sending to reply; see `baseline`.
    """
    if (queries.status[replied] > ERROR).any():
        raise ValueError("a query without a reply has no latency to split")
    # As a rule every query has its reply, and then nothing need be copied.
    chosen = slice(None) if replied.all() else replied
    lag, intended = queries.client_lag_ns[chosen], queries.intended_ns[chosen]
    sent, completed = intended + lag, intended + queries.latency_ns[chosen]
    return Attribution(stalls, base_ns, sent, completed, lag, pile_starts(sent, completed, base_ns))


def baseline(queries: QueryLog, normal: npt.NDArray[np.bool_]) -> int:
    """The median time from sending to reply of the chosen queries, ns; 0 when there are none."""
    if not normal.any():
        return 0
    return percentiles((queries.latency_ns - queries.client_lag_ns)[normal], ["50"])[0]

# SPDX-License-Identifier: Apache-2.0
"""The server's backlog as each query met it, and how much of that is owed to which stall (docs/analysis.md).

All arrays have one element a query, in the order of sending; times are ns. A backlog obeys Lindley's recursion: the
next
query meets what this one met, plus the time that this one takes to serve, less the time between the two, and never less
than nothing. The service time is not known, but every counterfactual backlog ("without the stalls") moves by the same
steps as the observed one. So the observed steps are replayed without the cause in question, and no estimate of the
service time can make the result drift.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Float32 = npt.NDArray[np.float32]

UNSEEN_FACTOR = 2
"""A step of more than this many times the greatest ordinary one is an unseen jump."""
ORDINARY_QUANTILE = 0.999
QUERIES_A_THREAD = 8
"""Among so many queries for each serving thread, all threads have served one, as good as always."""
LONG_EPISODE, EPISODES = 100, 10
"""Of how many queries a stretch of backlog is, at least, to show the service time; how many of the longest count."""
OFTEN = 0.4
"""The base is the median of normal queries, so about half of all queries meet more than that; beyond this share it
is low."""
BEGUN_BY = 3
"""Known stalls and lateness of less than the reciprocal share of the greatest backlog are not what made it."""
WORK_ERROR = 0.5
"""A jump of up to this share of the work that the server did on the same round is the error of that estimate."""


@dataclass(frozen=True)
class Backlog:
    """What of the backlog met by each query is owed to stalls, and what to a burst of the generator's."""

    stalls_ns: Int64
    """To stalls of all kinds; shape (queries,)."""
    column: npt.NDArray[np.int32]
    """Which column of `kinds` is the query's; shape (queries,). Most queries owe nothing and share the first one."""
    kinds: Float32
    """To each kind of stall, as far as 32 bits hold it: to share out `stalls_ns`; a row a kind, the first column 0."""
    client_lag_ns: Int64
    """Shape (queries,)."""

    def taken(self, rows: Int64) -> Backlog:
        """The same with the queries in another order."""
        return Backlog(self.stalls_ns[rows], self.column[rows], self.kinds, self.client_lag_ns[rows])


def owed(
    observed: Int64, found: Int64, bound: int, stalled: Int64, begun: Callable[[Int64], Float32], lag: Int64
) -> Backlog:
    """Share out the observed backlog by replaying its steps (`steps`) without one cause after another.

    `stalled` is the time of the stalls that began between two queries, shape (queries - 1,), and `begun` gives that of
    each kind for chosen pairs, shape (kinds, pairs): a query sent during a stall waits for what is left of it, so a
    stall is in the backlog as a whole from its beginning on. What the replay with the stalls lacks of the observed
    backlog is owed to unseen jumps. A step above `bound` is a long one (`steps`). `lag` is the generator's lateness.
    """
    known = replay(found + stalled, observed)
    none = replay(found, known)
    by_stalls = known - none
    del known
    punctual = none
    if lag.any():
        # A burst begins with a late query, and a long step there is work on the burst, not on what was due before.
        late = np.diff(lag)
        punctual = replay(np.where((found > bound) & (late > found), 0, found + late), none)
    # Only what is owed has kinds; it falls for all of them alike.
    rows = np.flatnonzero(by_stalls[1:])
    of_kinds = begun(rows)
    kinds = np.zeros((len(of_kinds), len(rows) + 1), dtype=np.float32)
    before = by_stalls[rows] + stalled[rows]
    factors = np.where(before > 0, by_stalls[rows + 1] / np.maximum(before, 1), 0).astype(np.float32)
    fresh = by_stalls[rows] == 0
    for kind, of_kind in zip(kinds, of_kinds, strict=True):
        if of_kind.any():
            kind[1:] = fade(factors, of_kind, fresh)
    column = np.zeros(len(observed), dtype=np.int32)
    column[rows + 1] = np.arange(1, len(rows) + 1, dtype=np.int32)
    return Backlog(by_stalls, column, kinds, none - punctual)


def envelope(backlog: Int64, threads: int) -> Int64:
    """The greatest backlog of the last queries: where several threads serve, that of the busiest of them."""
    width = QUERIES_A_THREAD * threads
    if threads == 1:
        return backlog
    greatest, reach = backlog.copy(), 1
    while reach < width:
        step = min(reach, width - reach)
        greatest[step:] = np.maximum(greatest[step:], greatest[:-step])
        reach += step
    return greatest


def service_time(
    observed: Int64, stalled: Int64, sent: Int64, completed: Int64, lag: Int64, base_ns: int, threads: int
) -> float:
    """The time to serve a query, from the longest stretches of queries that all met a backlog; shapes as in `steps`.

    In such a stretch the server serves without a break. Whatever else keeps it makes the stretch longer, so the
    shortest
    time of a query counts. It is never more than the base, nor than the time between two queries: the server keeps up.
    """
    least = min(base_ns / threads, float(sent[-1] - sent[0]) / max(len(sent) - 1, 1)) if len(sent) else 0.0
    # A service that became a little slower than the base leaves a backlog that never ends, and is none.
    level = base_ns if np.count_nonzero(observed) > OFTEN * len(observed) else 0
    edges = np.flatnonzero(np.diff(observed > level, prepend=False, append=False))
    first, last = edges[::2], edges[1::2] - 1
    counts = last - first + 1
    longest = np.argsort(-counts, kind="stable")[:EPISODES]
    blind, seen = least, False
    for start, end, count in zip(first[longest], last[longest], counts[longest], strict=True):
        if count < LONG_EPISODE:
            break
        # A stall that began before the first query of the stretch was sent may have been its start.
        since = max(int(start) - 1, 0)
        known = int(stalled[since:end].sum())
        busy = int(completed[start : end + 1].max() - sent[start]) - base_ns - level - known
        if busy <= 0:
            continue
        least = min(least, busy / int(count))
        # Without a stall at its start, an unseen one made the greatest backlog, perhaps with a round's work.
        greatest = int(observed[start : end + 1].max())
        if BEGUN_BY * (known + int(lag[start : end + 1].max())) >= greatest:
            seen = seen or greatest > BEGUN_BY * base_ns
        else:
            blind = min(blind, max(busy - greatest, 0) / int(count))
    return least if seen else min(least, blind)


def round_work(observed: Int64, completed: Int64, service_ns: float) -> Int64:
    """The work on other queries between the serving of each query and its reply, at most its observed backlog.

    An event loop that has a backlog serves all that has arrived, and then writes the replies. So a reply waits for the
    work on the queries behind it as well, and their replies follow faster than the server works: by as much as it had
    worked ahead. That is Lindley's recursion over the completions, backwards.
    """
    done = np.maximum.accumulate(completed)
    ahead = (service_ns - np.diff(done)).astype(np.int64)
    return replay(ahead[::-1], observed[::-1].copy(), 0)[::-1]


def steps(
    backlog: Int64, worked: Int64, stalled: Int64, sent: Int64, base_ns: int, ordinary: npt.NDArray[np.bool_]
) -> tuple[Int64, int]:
    """How the backlog changes from each query to the next, without stalls and without unseen jumps; one element fewer.
    Beside it the bound above which a step is a long one.

    `stalled` is the time of the stalls that began between two queries. A step up that is far beyond the `ordinary`
    ones is a
    jump that no stall explains, and left out, unless the round's work (`worked`) is so long that it may be an error
    of that. A
    backlog cannot fall faster than time passes; where replies overtake one
    another it seems to.
    """
    gaps = np.diff(sent)
    found = np.diff(backlog) - stalled
    both = ordinary[1:] & ordinary[:-1]
    usual = found[both] if both.any() else found
    usual = usual[usual > 0]
    place = math.ceil(ORDINARY_QUANTILE * len(usual)) - 1
    bound = UNSEEN_FACTOR * max(base_ns, int(np.partition(usual, place)[place]) if len(usual) else 0)
    found[found > bound + WORK_ERROR * worked[1:]] = 0
    np.copyto(found, -gaps, where=found < -gaps - bound)
    return found, bound


def replay(steps: Int64, bound: Int64, start: int | None = None) -> Int64:
    """The walk x[i+1] = min(bound[i+1], max(0, x[i] + steps[i])) from x[0] = `start`, or else bound[0], on.

    One step is a map x -> min(u, max(l, x + c)), and a chain of such maps is one too. So the walk is cut into about
    sqrt(n) blocks that are walked side by side, each from both extremes; that gives the map of each block, hence where
    each begins, and then all are walked again. This needs sqrt(n) operations on sqrt(n) elements, and no compiler.
    """
    count = len(steps)
    walked = np.empty(count + 1, dtype=np.int64)
    walked[:1] = bound[:1] if start is None else start
    if not count:
        return walked
    length = math.isqrt(count - 1) + 1
    blocks = -(-count // length)
    moves, limits = _in_blocks(steps, blocks, length), _in_blocks(bound[1:], blocks, length)
    low = np.full(blocks, 0, dtype=np.int64)
    high = np.full(blocks, np.iinfo(np.int64).max // 4)
    low -= high
    for move, limit in zip(moves, limits, strict=True):
        for extreme in (low, high):
            extreme += move
            np.maximum(extreme, 0, out=extreme)
            np.minimum(extreme, limit, out=extreme)
    sums = moves.sum(axis=0)
    begins = np.empty(blocks, dtype=np.int64)
    now = int(walked[0])
    for block, (least, most, total) in enumerate(zip(low.tolist(), high.tolist(), sums.tolist(), strict=True)):
        begins[block] = now
        now = min(most, max(least, now + total))
    for place, (move, limit) in enumerate(zip(moves, limits, strict=True)):
        begins += move
        np.maximum(begins, 0, out=begins)
        np.minimum(begins, limit, out=begins)
        moves[place] = begins
    walked[1:] = moves.T.ravel()[:count]
    return walked


def fade(factors: Float32, gains: Float32, fresh: npt.NDArray[np.bool_]) -> Float32:
    """The sums y[i] = factors[i] * (y[i-1] + gains[i]), without y[i-1] where it is fresh; in blocks as in `replay`."""
    count = len(factors)
    if not count:
        return np.empty(0, dtype=np.float32)
    length = math.isqrt(count - 1) + 1
    blocks = -(-count // length)
    scales = _in_blocks(np.where(fresh, np.float32(0), factors), blocks, length)
    gained = _in_blocks(factors * gains, blocks, length)
    now, scale = np.zeros(blocks), np.ones(blocks)
    for factor, gain in zip(scales, gained, strict=True):
        now = factor * now + gain
        scale *= factor
    begins, carried = np.empty(blocks), 0.0
    for block, (sum_of, whole) in enumerate(zip(now.tolist(), scale.tolist(), strict=True)):
        begins[block] = carried
        carried = sum_of + whole * carried
    for place, (factor, gain) in enumerate(zip(scales, gained, strict=True)):
        begins = factor * begins + gain
        gained[place] = begins
    faded: Float32 = gained.T.ravel()[:count]
    return faded


def _in_blocks(values: npt.NDArray[Any], blocks: int, length: int) -> npt.NDArray[Any]:
    """The values as one column a block, so that a row holds an element of every block; the last one is filled with
    0."""
    filled = np.zeros(blocks * length, dtype=values.dtype)
    filled[: len(values)] = values
    return np.ascontiguousarray(filled.reshape(blocks, length).T)

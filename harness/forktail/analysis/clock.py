# SPDX-License-Identifier: Apache-2.0
"""The clock of the host that sent the load, as one of the server's host: offset and drift by pings, and how sure.

A ping tells four times (`measure/clock.py`): the way there and back took its round trip, and nobody knows how much of
it each way. So the client's clock is behind by something between both extremes, which are a round trip apart.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from forktail import rundir
from forktail.analysis.querylog import QueryLog
from forktail.errors import BadInput

Int64 = npt.NDArray[np.int64]

_STRETCHES = 32
"""Of each stretch of the run the quickest pings count: a ping that waited on its way tells little."""
_KEPT_OF_STRETCH = 4
_FEWEST = 8


@dataclass(frozen=True)
class ClientClock:
    """`server = client + offset_ns + drift * (client - origin_ns)`, CLOCK_MONOTONIC of both hosts, ns."""

    origin_ns: int
    offset_ns: float
    drift: float
    error_ns: int
    """How far the line can be off from the first ping to the last: by half a round trip of a ping that was kept, and
    how far that lies from it."""
    pings: int
    round_trip_ns: int
    """The shortest."""

    def on_server(self, client_ns: Int64) -> Int64:
        """Times of the client's clock as ones of the server's, ns; the order of times is kept."""
        behind = np.rint(self.offset_ns + self.drift * (client_ns - self.origin_ns)).astype(np.int64)
        moved: Int64 = client_ns + behind
        return np.maximum.accumulate(moved) if len(moved) else moved


def fit(pings: Int64) -> ClientClock:
    """The client's clock by `pings`, shape (n, 4): asked and got back by the server's, read and answered by its own.

    ValueError where they are too few, or run backwards.
    """
    if pings.ndim != 2 or pings.shape[1] != 4 or len(pings) < _FEWEST:
        raise ValueError(f"fewer than {_FEWEST} pings")
    asked, read, answered, back = pings.T
    round_trips = (back - asked) - (answered - read)
    if (round_trips < 0).any() or (answered < read).any():
        raise ValueError("a ping that came back before it was sent")
    origin = int(read[0])
    when = (read + answered) / 2 - origin
    offsets = ((asked - read) + (back - answered)) / 2
    kept = _quickest(when, round_trips)
    # Against a constant, the fit keeps its digits where the clocks are days apart.
    base = float(offsets[kept[0]])
    weights = 1 / np.maximum(round_trips[kept], 1)
    drift, offset = np.polyfit(when[kept], offsets[kept] - base, 1, w=weights) if np.ptp(when[kept]) else (0.0, 0.0)
    off = np.abs(offsets[kept] - base - offset - drift * when[kept])
    # Both clocks being straight, it is off by no more between kept pings, and by what it leans before and after them.
    first, last = when[kept].min(), when[kept].max()
    outside = max(first - when.min(), when.max() - last) / max(last - first, 1)
    error = int(np.ceil((round_trips[kept] / 2 + off).max() * (1 + 2 * outside)))
    return ClientClock(origin, base + float(offset), float(drift), error, len(pings), int(round_trips.min()))


def _quickest(when: npt.NDArray[np.float64], round_trips: Int64) -> npt.NDArray[np.intp]:
    """The indices of the quickest pings of each stretch of time, some of the first and of the last in any case."""
    edges = np.linspace(when.min(), when.max(), _STRETCHES + 1)[1:-1]
    stretch = np.searchsorted(edges, when)
    order = np.lexsort((round_trips, stretch))
    rank = np.arange(len(order)) - np.searchsorted(stretch[order], stretch[order])
    kept = rank < _KEPT_OF_STRETCH
    # A stretch whose pings were all held up on their way would only widen the error, but both ends hold the line.
    limit = 3 * max(int(np.median(np.sort(round_trips)[: max(len(round_trips) // 10, 1)])), 1)
    ends = (rank == 0) & np.isin(stretch[order], [0, _STRETCHES - 1])
    return np.sort(order[kept & (round_trips[order] <= limit) | ends])


def read_client(path: Path) -> tuple[dict[str, object], ClientClock]:
    """What `client.json` tells of the host that sent the load, and its clock; BadInput names the file."""
    document = rundir.read_json(path, rundir.CLIENT_SCHEMA)
    try:
        clock = fit(np.array(document.pop("pings"), dtype=np.int64))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise BadInput(f"{path} has no pings that tell the clocks apart ({error}): run again.") from error
    return document, clock


def move(queries: QueryLog, clock: ClientClock) -> QueryLog:
    """A query log with its times in the server's clock; how long things took is left as it was."""
    start = int(clock.on_server(np.array([queries.start_ns], dtype=np.int64))[0])
    return replace(queries, start_ns=start, intended_ns=clock.on_server(queries.intended_ns))

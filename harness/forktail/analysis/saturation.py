# SPDX-License-Identifier: Apache-2.0
"""Whether the server could serve the load at all, apart from snapshots: judged by the normal queries alone.

A server that cannot keep up answers ever later, and its latencies say how long the run was, not how fast the server is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]

FEW = 200
"""So many normal queries must follow one another to show a trend, or what the server completes."""
SLICES = 10
SETTLED = 5.0
"""A snapshot's backlog drains for up to so many times the length of its window; what arrives then is left out."""
COMPLETED_SHARE = 0.95
"""A stretch is a failure to keep up only if less than this share of its arrivals is completed in its time."""
GROWTH_SHARE = 0.02
"""Of the stretch's length: growing residence of less than this is no overload that its completions would show."""
UNLOADED_FACTOR = 10
UNLOADED_FACTOR_INVALID = 50
UNLOADED_FLOOR_NS, UNLOADED_FLOOR_INVALID_NS = 500_000, 2_000_000
"""A base beyond these multiples of the unloaded time, and these times, is queueing and not service."""


@dataclass(frozen=True)
class Saturation:
    """How the server kept up with the load, from the longest stretch of normal queries."""

    arrived_per_s: float | None
    completed_per_s: float | None
    """Replies within the stretch, including those of earlier queries; null, as the former, where there is no
    stretch."""
    growth_us_per_s: float | None
    """By how much the median residence grew each second from the first to the last tenth of the stretch."""
    grew_ns: int | None
    """By how much in all."""
    stretch_ns: int
    unloaded_ns: int | None
    """The time from sending to reply of a query that met no other; None where no such query is known."""
    base_ns: int

    @property
    def falls_behind(self) -> bool:
        """Whether the residence grew, and fewer replies than queries came."""
        return (
            self.arrived_per_s is not None
            and self.completed_per_s is not None
            and self.grew_ns is not None
            and self.completed_per_s < COMPLETED_SHARE * self.arrived_per_s
            and self.grew_ns > GROWTH_SHARE * self.stretch_ns
        )

    @property
    def queues(self) -> bool:
        """Whether the ordinary query waits for others far longer than it takes by itself."""
        return self._beyond(UNLOADED_FACTOR, UNLOADED_FLOOR_NS)

    @property
    def queues_hopelessly(self) -> bool:
        """Whether it does so beyond the bound up to which the run counts."""
        return self._beyond(UNLOADED_FACTOR_INVALID, UNLOADED_FLOOR_INVALID_NS)

    def _beyond(self, factor: float, floor_ns: int) -> bool:
        return self.unloaded_ns is not None and self.base_ns > max(factor * self.unloaded_ns, floor_ns)


def saturation(
    sent_ns: Int64,
    completed_ns: Int64,
    normal: npt.NDArray[np.bool_],
    windows: list[tuple[int, int]],
    base_ns: int,
    idle_ns: int | None = None,
) -> Saturation:
    """Judge answered queries in the order of sending; `normal` are those of the class, `windows` the snapshots' (ns).

    `idle_ns` is a round trip that was measured without load, where there is one. Else the unloaded time is the
    median of
    the queries that found no other outstanding, if the run has `FEW` of them, of any class.
    """
    unloaded = idle_ns if idle_ns is not None else _alone(sent_ns, completed_ns)
    first, last = _longest_stretch(sent_ns, normal, windows)
    if last - first < FEW:
        return Saturation(None, None, None, None, 0, unloaded, base_ns)
    sent, completed = sent_ns[first:last], completed_ns[first:last]
    stretch = max(int(sent[-1] - sent[0]), 1)
    within = (completed_ns > sent[0]) & (completed_ns <= sent[-1])
    tenth = (last - first) // SLICES
    residence = completed - sent
    grew = int(np.median(residence[-tenth:]) - np.median(residence[:tenth]))
    seconds = stretch / 1e9
    return Saturation(
        (last - first - 1) / seconds,
        int(within.sum()) / seconds,
        grew / 1e3 / seconds,
        grew,
        stretch,
        unloaded,
        base_ns,
    )


def _alone(sent: Int64, completed: Int64) -> int | None:
    """The median residence of the queries that were sent when all earlier ones had been answered, ns."""
    if not len(sent):
        return None
    alone = np.concatenate(([True], sent[1:] >= np.maximum.accumulate(completed)[:-1]))
    return int(np.median((completed - sent)[alone])) if alone.sum() >= FEW else None


def _longest_stretch(sent: Int64, normal: npt.NDArray[np.bool_], windows: list[tuple[int, int]]) -> tuple[int, int]:
    """The longest time of normal queries that no snapshot interrupts and no snapshot's backlog reaches, as rows."""
    kept = normal.copy()
    for start, end in windows:
        settled = end + SETTLED * (end - start)
        kept[np.searchsorted(sent, start) : np.searchsorted(sent, settled, side="right")] = False
    edges = np.flatnonzero(np.diff(kept, prepend=False, append=False))
    if not len(edges):
        return 0, 0
    longest = int(np.argmax(edges[1::2] - edges[::2]))
    return int(edges[2 * longest]), int(edges[2 * longest + 1])

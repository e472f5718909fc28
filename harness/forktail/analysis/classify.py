# SPDX-License-Identifier: Apache-2.0
"""The class of each query: normal, snapshot or warm-up, by when it arrived and never by when it completed; armed where
the probe slowed the server outside a window; ambiguous where the load came from another host, whose clock is not known
well enough to tell."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

import numpy as np
import numpy.typing as npt

CLASSES = ("normal", "snapshot", "warmup", "ambiguous", "armed")
NORMAL, SNAPSHOT, WARMUP, AMBIGUOUS, ARMED = range(len(CLASSES))


def classify(
    intended_ns: npt.NDArray[np.int64],
    windows: Iterable[tuple[int, int]],
    warmup_end_ns: int,
    error_ns: int = 0,
    armed: Iterable[tuple[int, int]] = (),
) -> npt.NDArray[np.uint8]:
    """The class of each query, from its intended time (sorted, ns).

    A query is a snapshot query when it is intended within [start, end] of a window, both ends included: P, section 1,
    "the queries that arrive when the snapshot is taken". Those intended before the warm-up's end are in no class.
    Where these times may be off by `error_ns`, those nearer than that to an edge of a window are ambiguous. Those of
    the stretches `armed` that no window covers met a server slowed by the probe's costly programs: they are armed.
    """
    classes = np.full(len(intended_ns), NORMAL, dtype=np.uint8)

    def put(start: int, end: int, name: int) -> None:
        first = np.searchsorted(intended_ns, start, side="left")
        classes[first : np.searchsorted(intended_ns, end, side="right")] = name

    for start, end in armed:
        put(start, end, ARMED)
    windows = list(windows)
    for start, end in windows:
        put(start, end, SNAPSHOT)
    if error_ns:
        for edge in chain.from_iterable(windows):
            put(edge - error_ns, edge + error_ns, AMBIGUOUS)
    classes[: np.searchsorted(intended_ns, warmup_end_ns, side="left")] = WARMUP
    return classes

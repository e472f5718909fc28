# SPDX-License-Identifier: Apache-2.0
"""The class of each query: normal, snapshot or warm-up, by when it arrived and never by when it completed."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

CLASSES = ("normal", "snapshot", "warmup")
NORMAL, SNAPSHOT, WARMUP = range(len(CLASSES))


def classify(
    intended_ns: npt.NDArray[np.int64], windows: Iterable[tuple[int, int]], warmup_end_ns: int
) -> npt.NDArray[np.uint8]:
    """The class of each query, from its intended time (sorted, ns).

    A query is a snapshot query when it is intended within [start, end] of a window, both ends included: P, section 1,
    "the queries that arrive when the snapshot is taken". Those intended before the warm-up's end are in no class.
    """
    classes = np.full(len(intended_ns), NORMAL, dtype=np.uint8)
    for start, end in windows:
        first = np.searchsorted(intended_ns, start, side="left")
        behind = np.searchsorted(intended_ns, end, side="right")
        classes[first:behind] = SNAPSHOT
    classes[: np.searchsorted(intended_ns, warmup_end_ns, side="left")] = WARMUP
    return classes

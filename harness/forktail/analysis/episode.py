# SPDX-License-Identifier: Apache-2.0
"""The slow episode of a snapshot: how long queries stay slow after the fork that made them so."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]

SLOW_SHARE = 0.1
"""A query is slow from this share of the slowest one's latency on."""


def slow_until(
    arrivals_ns: Int64, latencies_ns: Int64, start_ns: int, end_ns: int, usual_ns: int, least_ns: int
) -> int:
    """When the last slow query of the episode that begins at `start_ns` arrived; `start_ns` + `least_ns` at least.

    Arrivals are sorted; those from `start_ns` to `end_ns` count. A query is slow that takes more than `usual_ns` and
    SLOW_SHARE of the slowest. The episode goes on as long as the next slow query arrives before it has doubled: a later
    stall of its own, as when the child exits, is another episode.
    """
    until = start_ns + least_ns
    inside = slice(*np.searchsorted(arrivals_ns, [start_ns, end_ns]))
    latencies = latencies_ns[inside]
    if not len(latencies):
        return until
    slow = arrivals_ns[inside][latencies > max(usual_ns, int(SLOW_SHARE * int(latencies.max())))]
    for arrival in slow.tolist():
        if arrival - until > until - start_ns:
            break
        until = max(until, arrival)
    return until

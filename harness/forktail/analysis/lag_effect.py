# SPDX-License-Identifier: Apache-2.0
"""What the load generator's own lateness adds to each figure of a class, and the figures that it makes worthless."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from forktail.analysis.quantity import share_text, time_text
from forktail.analysis.statistics import PERCENTS, rank

Int64 = npt.NDArray[np.int64]

SHARE = 0.10
"""A figure that owes more than this to the generator is withheld, because it is no longer the server's."""
FLOOR_NS = 100_000
"""A lateness below this is that of any wakeup. It imitates no stall, so the figure stands beside its effect."""

FIGURES = PERCENTS | {"max": "100"}
"""The figures of a class by their names in documents."""


@dataclass(frozen=True)
class LagEffect:
    """One figure with and without what the queries of the class owe to the generator, ns."""

    figure_ns: int
    without_ns: int
    """The same percentile when each query's latency is taken without what it owes."""

    @property
    def owed_ns(self) -> int:
        return self.figure_ns - self.without_ns

    @property
    def share(self) -> float:
        return self.owed_ns / self.figure_ns if self.figure_ns else 0.0

    @property
    def withheld(self) -> bool:
        """Whether the figure says as much about the generator as about the server."""
        return self.owed_ns > FLOOR_NS and self.share > SHARE

    @property
    def reason(self) -> str:
        """Why it is withheld, in a phrase."""
        return (
            f"{time_text(self.owed_ns)} of {time_text(self.figure_ns)} ({share_text(self.share)}) came from the load "
            f"generator's own lateness; without it the figure is {time_text(self.without_ns)}"
        )


def lag_effects(latency_ns: Int64, owed_ns: Int64) -> dict[str, LagEffect]:
    """The effect on each figure of FIGURES, for the latencies of a class and what each owes, both of shape (queries,).

    Empty where there are no queries.
    """
    if not len(latency_ns):
        return {}
    ranks = {name: rank(len(latency_ns), percent) - 1 for name, percent in FIGURES.items()}
    places = sorted(set(ranks.values()))
    whole, without = (np.partition(values, places) for values in (latency_ns, latency_ns - owed_ns))
    return {name: LagEffect(int(whole[place]), int(without[place])) for name, place in ranks.items()}

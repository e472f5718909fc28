# SPDX-License-Identifier: Apache-2.0
"""Contrasts: how two kernels of a sweep differ in a metric, with an interval, and whether the runs tell them apart.

Two kernels are told apart where no run of one reaches any run of the other (the interval excludes 1 by LEAST_CHANGE),
and where they differ by more than the noise floor. The noise floor is how far the runs of one kernel that was measured
twice are apart; without it the interval alone decides. A kernel that was measured twice is compared with the runs of
both.

Of equal kernels with three runs each, 10 % of noise from run to run and three metrics, one sweep in twenty asserts a
difference somewhere (tests/sweep/test_contrast.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil, log
from typing import Any

import numpy as np

from forktail.analysis.mechanism import ASYNC_FORK, DEFAULT, ODF
from forktail.analysis.sweep.interval import LEAST, Interval, ratio_interval, runs_lacking
from forktail.analysis.sweep.label import Cell, again, flavour, fork_label, group_label

PAIRS = [(DEFAULT, ODF), (DEFAULT, ASYNC_FORK), (ODF, ASYNC_FORK)]
"""Which kernel is compared with which, in the order of tables."""

CONTRASTED = ("snapshot.p99_us", "snapshot.max_us", "fork_us", "interruptions")
"""The metrics that are compared, in the order of tables; of each a lower value is better."""

LEAST_CHANGE = 1.05
"""A ratio nearer to 1 than this is no difference worth a word."""
ALIKE_WITHIN = 1.10
"""An interval within this factor on both sides of 1 shows two kernels to be alike."""
_MOST_RUNS = 100
"""More runs than these are not asked for."""
_Z = 1.96 + 0.84
"""Standard errors of a change that a test of 95 % finds in four of five cases."""
_EFFICIENCY = 0.86
"""The rank-sum test needs at most 1/0.86 times the runs of a t test (Hodges and Lehmann, 1956)."""

LOWER, HIGHER, ALIKE, INCONCLUSIVE = "lower", "higher", "alike", "inconclusive"

Values = Mapping[str, Mapping[str, Sequence[float]]]
"""By cell and metric, the figure of each valid run that has it."""


@dataclass(frozen=True)
class Contrast:
    """`new` against `old` in one metric and one setting."""

    metric: str
    group: str
    """Size and whatever else the sweep varies (`group_label`)."""
    old: str
    new: str
    """Forks as tables call them (`fork_label`)."""
    old_cell: str
    new_cell: str
    ratio: float | None
    """new / old, the median over all pairs of runs; None where a run shows 0 or none has the figure."""
    low: float | None
    high: float | None
    confidence: float | None
    runs: tuple[int, int]
    """How many runs of old and new have the figure."""
    noise_floor: float | None
    """The ratio, 1 or more, that a kernel measured twice shows against itself; None without such a pair."""
    verdict: str
    """LOWER or HIGHER where the runs tell new from old, ALIKE where they show no difference of ALIKE_WITHIN."""
    more_runs: int | None
    """Where it is INCONCLUSIVE, about how many more runs of each kernel would say more; None where that is too many."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"runs": list(self.runs)}


def contrasts(cells: Sequence[Cell], values: Values) -> list[Contrast]:
    """The contrasts of a sweep, setting by setting and metric by metric; the noise floor itself is not among them."""
    found = []
    for group in dict.fromkeys((group_label(cell), cell["engine"], cell["generator"]) for cell in cells):
        inside = [cell for cell in cells if (group_label(cell), cell["engine"], cell["generator"]) == group]
        for metric in CONTRASTED:
            floor = _noise_floor(inside, values, metric)
            found += [_contrast(metric, old, new, inside, values, floor) for old, new in _pairs(inside)]
    return found


def _pairs(cells: Sequence[Cell]) -> Iterator[tuple[Cell, Cell]]:
    first = [cell for cell in cells if not again(cell)]
    for one, other in PAIRS:
        for old in first:
            yield from ((old, new) for new in first if (flavour(old), flavour(new)) == (one, other))


def _both_times(cell: Cell, cells: Sequence[Cell]) -> list[Cell]:
    """The cell, and the one that measured the same kernel a second time."""
    return [cell, *(other for other in cells if again(other) and _same_kernel(cell, other))]


def _same_kernel(one: Cell, other: Cell) -> bool:
    return bool(one["kernel"] == other["kernel"] and one["copy_threads"] == other["copy_threads"])


def _interval(old: Sequence[float], new: Sequence[float]) -> Interval | None:
    return ratio_interval(old, new) if old and new and min(*old, *new) > 0 else None


def _noise_floor(cells: Sequence[Cell], values: Values, metric: str) -> float | None:
    """The greatest ratio of two runs of a kernel, one of each of its two measurements."""
    floors = []
    for second in (cell for cell in cells if again(cell)):
        for first in (cell for cell in cells if not again(cell) and _same_kernel(cell, second)):
            interval = _interval(values[first["name"]][metric], values[second["name"]][metric])
            if interval is not None:
                floors.append(max(interval.high, 1 / interval.low))
    return max(floors, default=None)


def _contrast(
    metric: str, old: Cell, new: Cell, cells: Sequence[Cell], values: Values, floor: float | None
) -> Contrast:
    runs_of_old = [value for cell in _both_times(old, cells) for value in values[cell["name"]][metric]]
    runs_of_new = [value for cell in _both_times(new, cells) for value in values[cell["name"]][metric]]
    interval = _interval(runs_of_old, runs_of_new)
    verdict, more_runs = _judge(runs_of_old, runs_of_new, interval, floor)
    return Contrast(
        metric=metric,
        group=group_label(old),
        old=fork_label(old),
        new=fork_label(new),
        old_cell=old["name"],
        new_cell=new["name"],
        ratio=interval.ratio if interval else None,
        low=interval.low if interval else None,
        high=interval.high if interval else None,
        confidence=round(interval.confidence, 4) if interval else None,
        runs=(len(runs_of_old), len(runs_of_new)),
        noise_floor=floor,
        verdict=verdict,
        more_runs=more_runs,
    )


def _judge(
    old: Sequence[float], new: Sequence[float], interval: Interval | None, floor: float | None
) -> tuple[str, int | None]:
    if interval is None:
        # A figure of 0 has no ratio; one that no run has needs a run, not more of them.
        return INCONCLUSIVE, None
    if interval.confidence < LEAST:
        return INCONCLUSIVE, runs_lacking(len(old), len(new))
    beyond = max(floor or 1.0, 1.0)
    if interval.high < 1 / LEAST_CHANGE and interval.ratio < 1 / beyond:
        return LOWER, None
    if interval.low > LEAST_CHANGE and interval.ratio > beyond:
        return HIGHER, None
    if 1 / ALIKE_WITHIN < interval.low <= interval.high < ALIKE_WITHIN:
        return ALIKE, None
    return INCONCLUSIVE, _more_runs(old, new, interval.ratio)


def _more_runs(old: Sequence[float], new: Sequence[float], ratio: float) -> int | None:
    """About how many more runs a side would find the change seen, or exclude one of ALIKE_WITHIN, at the noise seen."""
    change = max(abs(log(ratio)), log(ALIKE_WITHIN))
    variance = float(np.var(np.log(old), ddof=1) + np.var(np.log(new), ddof=1))
    more = max(ceil(_Z**2 * variance / _EFFICIENCY / change**2) - min(len(old), len(new)), 1)
    return more if more <= _MOST_RUNS else None

# SPDX-License-Identifier: Apache-2.0
"""The change of each metric between two sets of runs: its size, its interval, and the chance of a false alarm.

The unit is a run, never a query: queries of one run share its server, its boot and its luck. Values are logarithms, as
the noise of times is a share of them; so a change is the logarithm of a ratio of geometric means.

Intervals are bootstrap-t (B. Efron, R. Tibshirani, An Introduction to the Bootstrap, 1993, section 12.5): a resample is
measured in its own standard error. Runs are drawn anew from the normal distribution with the covariance of those seen
(the same, section 6.5), not from the few themselves: ten runs drawn from ten repeat some and leave others out, so that
their t has too long a tail, and at 8 % of noise it hides every eighth change of 20 %.

The chance of a false alarm is held for all judged metrics together by redrawing them together, and taking of each
redrawing its most striking metric (P. Westfall, S. Young, Resampling-Based Multiple Testing, 1993, minP).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

SEED = 1
"""The same runs always give the same comparison."""
FEWEST_DRAWS, MOST_DRAWS = 10_000, 50_000
_TAIL = 20
"""Redrawings that are to lie beyond the bound of a single metric of the family."""


@dataclass(frozen=True)
class Sample:
    """The runs of a cell on both sides, as logarithms, signed so that a greater value is worse."""

    base: Floats
    """Shape (runs, metrics)."""
    new: Floats
    """Shape (runs, metrics); paired, row i was measured right before or after row i of `base`."""
    paired: bool
    regress: Floats
    """Shape (metrics,): the least change that is an alarm, where the metrics are judged."""


@dataclass(frozen=True)
class Change:
    """The change of one metric, in logarithms: positive is worse."""

    size: float
    low: float
    """The low end of its interval."""
    high: float
    """The high end."""
    error: float
    """The standard error of `size`."""


@dataclass(frozen=True)
class _Redrawn:
    size: Floats
    """Shape (metrics,): the change seen."""
    error: Floats
    """Shape (metrics,): its standard error."""
    strayed: Floats
    """Shape (draws, metrics): how far the change seen in each redrawing is off."""
    t: Floats
    """Shape (draws, metrics): the same in the redrawing's own standard error."""


def changes(samples: Sequence[Sample], confidence: float) -> list[list[Change]]:
    """The change of each metric of each sample with its interval of that confidence, each by itself."""
    generator = np.random.default_rng(SEED)
    single = (1 - confidence) / 2
    return [_intervals(_redraw(sample, FEWEST_DRAWS, generator, together=False), single, single) for sample in samples]


def judged_changes(
    samples: Sequence[Sample], confidence: float, family_error: float
) -> tuple[list[list[Change]], float]:
    """The change of each metric of each sample, all of them judged together, and the level of their low ends.

    An alarm is a change seen that reaches `regress`, and whose low end lies above zero. A low end lies too high in
    (1 - confidence) / 2 of all cases, or in fewer where the samples would else raise an alarm although nothing changed
    more often than in `family_error` of all cases.
    """
    generator = np.random.default_rng(SEED)
    judged = sum(len(sample.regress) for sample in samples)
    count = int(np.clip(_TAIL * judged / family_error, FEWEST_DRAWS, MOST_DRAWS))
    redrawn = [_redraw(sample, count, generator, together=True) for sample in samples]
    single = (1 - confidence) / 2
    level = min(single, _family_level(redrawn, [sample.regress for sample in samples], family_error))
    return [_intervals(one, single, level) for one in redrawn], level


def _redraw(sample: Sample, count: int, generator: np.random.Generator, *, together: bool) -> _Redrawn:
    """Twice `count` redrawings: each is taken mirrored too, as likely and for free."""
    if sample.paired:
        # A pair shares what drifts, so its difference is the unit.
        drawn = _mean(sample.new - sample.base, count, generator, together=together)
        size, variance, strayed, drawn_variance = drawn
    else:
        base, base_variance, base_strayed, base_drawn = _mean(sample.base, count, generator, together=together)
        new, new_variance, new_strayed, new_drawn = _mean(sample.new, count, generator, together=together)
        size, variance = new - base, base_variance + new_variance
        strayed, drawn_variance = new_strayed - base_strayed, base_drawn + new_drawn
    # Values that are all the same have no spread to measure in.
    t = np.divide(strayed, np.sqrt(drawn_variance), out=np.zeros_like(strayed), where=drawn_variance > 0)
    return _Redrawn(size, np.sqrt(variance), np.concatenate((strayed, -strayed)), np.concatenate((t, -t)))


def _mean(
    values: Floats, count: int, generator: np.random.Generator, *, together: bool
) -> tuple[Floats, Floats, Floats, Floats]:
    """Mean over runs and its variance, shape (metrics,); how far redrawn means are off, and the variance of each.

    `together`, metrics that go together in the runs go together in the redrawn ones; else each is right by itself.
    """
    runs = len(values)
    mean, variance = values.mean(axis=0), values.var(axis=0, ddof=1) / runs
    if not together:
        # Mean and variance of normal values are independent, and of known distributions.
        strayed = generator.standard_normal((count, 1)) * np.sqrt(variance)
        return mean, variance, strayed, generator.chisquare(runs - 1, (count, 1)) / (runs - 1) * variance
    _, scales, axes = np.linalg.svd((values - mean) / np.sqrt(runs - 1), full_matrices=False)
    factor = scales[:, None] * axes
    total, squares = np.zeros((count, values.shape[1])), np.zeros((count, values.shape[1]))
    # A run at a time, so that many runs take no more memory than few.
    for _ in range(runs):
        drawn = generator.standard_normal((count, len(scales))) @ factor
        total += drawn
        squares += drawn**2
    strayed = total / runs
    return mean, variance, strayed, np.maximum(squares / runs - strayed**2, 0) / (runs - 1)


def _family_level(redrawn: Sequence[_Redrawn], regress: Sequence[Floats], family_error: float) -> float:
    """The level of each low end at which redrawings, in which nothing changed, raise an alarm as often as allowed."""
    striking = np.ones(len(redrawn[0].t))
    for one, bounds in zip(redrawn, regress, strict=True):
        for metric, bound in enumerate(bounds):
            t = one.t[:, metric]
            alarming = np.flatnonzero(one.strayed[:, metric] >= bound)
            at_least = len(t) - np.searchsorted(np.sort(t), t[alarming], side="left")
            striking[alarming] = np.minimum(striking[alarming], at_least / len(t))
    allowed = int(family_error * len(striking))
    return max(float(np.sort(striking)[allowed]) - 1 / len(striking), 0.0)


def _intervals(one: _Redrawn, high_level: float, low_level: float) -> list[Change]:
    ordered = np.sort(one.t, axis=0)
    count = len(ordered)
    above = ordered[count - 1 - int(low_level * count)]
    below = ordered[int(high_level * count)]
    lows, highs = one.size - above * one.error, one.size - below * one.error
    return [
        Change(float(size), float(low), float(high), float(error))
        for size, low, high, error in zip(one.size, lows, highs, one.error, strict=True)
    ]

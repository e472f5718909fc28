# SPDX-License-Identifier: Apache-2.0
"""How often a comparison cries wolf, and how often it misses one: on histories whose truth is known."""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from tests.compare.history import BEGAN, TYPICAL, Measure, Values, noisy, sweep

from forktail.analysis.compare import Verdict, compare, read_thresholds
from forktail.analysis.compare.bootstrap import Floats, Sample, changes, judged_changes
from forktail.sweep.plan import PlannedRun

THRESHOLDS = read_thresholds()
HISTORIES = 100
NOISE, DRIFT = 0.08, 0.15
SLOWER: Values = {"snapshot.p99_us": 0.2}


def _side(directory: Path, own: Measure, drift: Floats, began: datetime, runs: int) -> Path:
    def measure(run: PlannedRun) -> Values:
        return {metric: value * float(drift[run.repeat - 1]) for metric, value in own(run).items()}

    workload = f"[sweep]\nrepeat = {runs}\nnoise_floor = false"
    return sweep(directory, measure, workload=workload, began=began, apart=timedelta(seconds=80))


def _verdicts(directory: Path, shift: Values, *, in_turn: bool, runs: int = 10) -> Counter[Verdict]:
    """The verdicts on pairs of sweeps of so many runs each; in turn, both share a drift from round to round."""
    # The one generator whose numbers numpy never changes.
    generator = np.random.RandomState(20_260_131)
    found: Counter[Verdict] = Counter()
    for _ in range(HISTORIES):
        drift = np.exp(DRIFT * generator.standard_normal(10)) if in_turn else np.ones(10)
        sides = [
            _side(directory / name, noisy(generator, NOISE, shifted), drift, began, runs)
            for name, shifted, began in (
                ("base", {}, BEGAN),
                ("new", shift, BEGAN + (timedelta(seconds=40) if in_turn else timedelta(days=1))),
            )
        ]
        result = compare(sides[0], sides[1], THRESHOLDS)
        assert result.document["cells"][0]["paired"] is in_turn
        found[result.verdict] += 1
        for side in sides:
            shutil.rmtree(side)
    return found


@pytest.mark.parametrize("in_turn", [True, False], ids=["in turn", "one after the other"])
def test_of_a_hundred_equal_pairs_one_at_most_is_a_false_alarm(tmp_path: Path, in_turn: bool) -> None:
    found = _verdicts(tmp_path, {}, in_turn=in_turn)
    assert found[Verdict.REGRESS] <= 1, found
    assert found[Verdict.INFRASTRUCTURE] == 0
    # A gate that never says anything raises no false alarm either.
    assert found[Verdict.PASS] >= 80, found


def test_three_runs_a_side_raise_no_more_false_alarms(tmp_path: Path) -> None:
    found = _verdicts(tmp_path, {}, in_turn=False, runs=3)
    assert found[Verdict.REGRESS] <= 1, found
    assert found[Verdict.INFRASTRUCTURE] == 0


@pytest.mark.parametrize("in_turn", [True, False], ids=["in turn", "one after the other"])
def test_of_a_hundred_shifts_of_a_fifth_95_are_found(tmp_path: Path, in_turn: bool) -> None:
    found = _verdicts(tmp_path, SLOWER, in_turn=in_turn)
    assert found[Verdict.REGRESS] >= 95, found


def _sample(generator: np.random.Generator, noise: float, metrics: int, paired: bool = True) -> Sample:
    base, new = (noise * generator.standard_normal((10, metrics)) for _ in range(2))
    return Sample(base, new, paired, np.full(metrics, np.log(1.1)))


@pytest.mark.parametrize(
    ("paired", "quantile"), [(True, 2.262), (False, 2.101)], ids=["9 degrees of freedom", "18 degrees of freedom"]
)
def test_a_single_interval_is_that_of_student(paired: bool, quantile: float) -> None:
    """Ten pairs, or ten runs of equal noise on either side, and 95 %: the tables' quantiles."""
    sample = _sample(np.random.default_rng(2), 0.1, 1, paired)
    if not paired:
        sample = Sample(sample.base, sample.base[::-1] + 0.3, False, sample.regress)
    change = changes([sample], 0.95)[0][0]
    assert (change.size - change.low) / change.error == pytest.approx(quantile, rel=0.04)
    assert (change.high - change.size) / change.error == pytest.approx(quantile, rel=0.04)


def test_the_more_is_judged_the_more_an_alarm_needs() -> None:
    """Where the noise is such that the least change that counts protects from nothing, the family alone must."""
    generator = np.random.default_rng(3)
    few, many = (judged_changes([_sample(generator, 0.5, 3) for _ in range(cells)], 0.95, 0.01)[1] for cells in (1, 6))
    # Independent metrics: each has its share of the family's error, and a little more as alarms may coincide.
    assert few == pytest.approx(0.01 / 3, rel=0.25)
    assert many == pytest.approx(0.01 / 18, rel=0.35)


def test_what_is_measured_twice_is_judged_once() -> None:
    sample = _sample(np.random.default_rng(4), 0.5, 1)
    base, new = (np.repeat(side, 2, axis=1) for side in (sample.base, sample.new))
    twice = Sample(base, new, paired=True, regress=np.repeat(sample.regress, 2))
    alone, doubled = (judged_changes([one], 0.95, 0.01)[1] for one in (sample, twice))
    assert doubled == pytest.approx(alone, rel=0.15)


def test_where_little_noise_is_the_least_change_that_counts_protects_enough() -> None:
    assert judged_changes([_sample(np.random.default_rng(5), 0.02, 3)], 0.95, 0.01)[1] == pytest.approx(0.025)


def test_runs_without_any_noise_have_an_interval_of_no_width(tmp_path: Path) -> None:
    base = sweep(tmp_path / "base", lambda _: {})
    new = sweep(tmp_path / "new", lambda _: {"fork_us": TYPICAL["fork_us"] * 1.5})
    result = compare(base, new, THRESHOLDS)
    fork = next(metric for metric in result.document["cells"][0]["metrics"] if metric["metric"] == "fork_us")
    assert (fork["ratio"], fork["low"], fork["high"]) == pytest.approx((1.5, 1.5, 1.5))
    assert result.verdict == Verdict.REGRESS

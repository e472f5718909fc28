# SPDX-License-Identifier: Apache-2.0
"""Intervals against brute force and simulated truth; what a sweep asserts, and how often it does so falsely."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from numpy.random import Generator, default_rng

from forktail.analysis.sweep.answer import answer
from forktail.analysis.sweep.contrast import ALIKE, CONTRASTED, HIGHER, INCONCLUSIVE, LOWER, Contrast, contrasts
from forktail.analysis.sweep.interval import LEAST, WANTED, confidence, ratio_interval, runs_lacking

P99 = "snapshot.p99_us"
ARMS = (("default", "default"), ("odf", "odf"), ("async-fork", "async-fork"), ("default (again)", "default"))
Runs = dict[str, list[float]]


def _cell(arm: str, kernel: str) -> dict[str, Any]:
    return {
        "name": arm,
        "arm": arm,
        "kernel": kernel,
        "releases": [],
        "values": {},
        "size_bytes": 2**28,
        "copy_threads": 1 if kernel == "async-fork" else None,
        "engine": "redis",
        "generator": "forktail-load",
    }


CELLS = [_cell(*arm) for arm in ARMS]


def _contrasts(runs: Runs, metrics: tuple[str, ...] = (P99,)) -> list[Contrast]:
    cells = [cell for cell in CELLS if cell["name"] in runs]
    values = {
        cell["name"]: {metric: runs[cell["name"]] if metric in metrics else [] for metric in CONTRASTED}
        for cell in cells
    }
    return contrasts(cells, values)


def _of(found: list[Contrast], old: str, new: str) -> Contrast:
    return next(one for one in found if one.metric == P99 and one.old_cell == old and one.new_cell == new)


@pytest.mark.parametrize(("old", "new"), [(2, 2), (3, 3), (6, 3), (4, 5)])
def test_the_confidence_is_that_of_all_orders_of_the_runs(old: int, new: int) -> None:
    orders = list(itertools.combinations(range(old + new), new))
    wins = [sum(rank - place for place, rank in enumerate(ranks)) for ranks in orders]
    for left_out in range(old * new // 2):
        beyond = sum(win <= left_out for win in wins) / len(orders)
        assert confidence(old, new, left_out) == pytest.approx(max(0.0, 1 - 2 * beyond))


@pytest.mark.parametrize(("old", "new"), [(3, 3), (6, 3), (8, 8)])
def test_an_interval_covers_the_truth_as_often_as_it_says(old: int, new: int) -> None:
    generator = default_rng(1)
    draws, covered, said = 500, 0, 0.0
    for _ in range(draws):
        interval = ratio_interval(
            [*np.exp(generator.standard_normal(old))], [*(3 * np.exp(generator.standard_normal(new)))]
        )
        covered += interval.low <= 3 <= interval.high
        said = interval.confidence
    error = 3 * np.sqrt(said * (1 - said) / draws)
    assert covered / draws == pytest.approx(said, abs=error)
    assert said >= (WANTED if min(old, new) > 3 else LEAST)


def test_an_interval_stays_within_the_ratios_that_were_seen() -> None:
    interval = ratio_interval([10.0, 11.0, 12.0], [20.0, 30.0, 24.0])
    assert [interval.low, interval.high] == pytest.approx([20 / 12, 3.0])
    assert interval.confidence == pytest.approx(0.9)
    assert runs_lacking(2, 2) == 1
    assert runs_lacking(1, 1) == 2
    with pytest.raises(ValueError, match="positive"):
        ratio_interval([0.0], [1.0])


def test_kernels_whose_runs_are_apart_are_told_apart() -> None:
    runs = {
        "default": [30.0, 31, 32],
        "odf": [20.0, 21, 22],
        "async-fork": [10.0, 11, 12],
        "default (again)": [31.0, 32, 33],
    }
    found = _contrasts(runs)
    assert {(one.old_cell, one.new_cell): one.verdict for one in found if one.metric == P99} == {
        ("default", "odf"): LOWER,
        ("default", "async-fork"): LOWER,
        ("odf", "async-fork"): LOWER,
    }
    first = _of(found, "default", "odf")
    assert first.runs == (6, 3)
    assert first.noise_floor == pytest.approx(33 / 30)
    assert first.low is not None
    assert first.high is not None
    assert first.low < 21 / 31.5 < first.high < 1
    sentence = answer(CELLS, [one.as_json() for one in found])
    assert sentence.startswith("async-fork is better than default in p99 (65.1 % lower), and than odf in p99 (47.")
    assert "odf is better than default in p99 (33.3 % lower)" in sentence
    turned = _contrasts(runs | {"odf": [60.0, 61, 62]})
    assert _of(turned, "default", "odf").verdict == HIGHER
    assert "default is better than odf in p99" in answer(CELLS, [one.as_json() for one in turned])


def test_what_the_noise_floor_exceeds_is_not_asserted() -> None:
    runs = {"default": [30.0, 31, 32], "odf": [26.0, 27, 28], "async-fork": [10.0, 11, 12]}
    assert _of(_contrasts(runs), "default", "odf").verdict == LOWER
    noisy = _contrasts(runs | {"default (again)": [40.0, 41, 42]})
    assert _of(noisy, "default", "odf").verdict == INCONCLUSIVE
    assert _of(noisy, "default", "async-fork").verdict == LOWER
    assert "default and odf cannot be told apart in p99" in answer(CELLS, [one.as_json() for one in noisy])


def test_too_few_runs_are_inconclusive_and_say_how_many_more() -> None:
    runs = {"default": [30.0, 31], "odf": [20.0, 21]}
    one = _of(_contrasts(runs), "default", "odf")
    assert (one.verdict, one.more_runs) == (INCONCLUSIVE, 1)
    assert one.confidence == pytest.approx(0.6667)
    sentence = answer(CELLS[:2], [contrast.as_json() for contrast in _contrasts(runs)])
    assert sentence == "default and odf cannot be told apart in p99 (inconclusive: 1 more run of each)."
    overlapping = _of(_contrasts({"default": [30.0, 21, 28], "odf": [20.0, 29, 25]}), "default", "odf")
    assert overlapping.verdict == INCONCLUSIVE
    assert overlapping.more_runs is not None
    assert 3 < overlapping.more_runs <= 100


def test_equal_quiet_kernels_are_alike() -> None:
    found = _contrasts({"default": [30.0, 30.5, 31], "odf": [30.2, 30.4, 31.1]})
    assert _of(found, "default", "odf").verdict == ALIKE
    assert answer(CELLS[:2], [one.as_json() for one in found]) == "default and odf do not differ by 10 % in p99."


def test_a_figure_that_no_run_has_is_not_compared() -> None:
    one = _of(_contrasts({"default": [], "odf": [20.0, 21, 22]}), "default", "odf")
    assert (one.ratio, one.low, one.verdict, one.runs) == (None, None, INCONCLUSIVE, (0, 3))
    assert _of(_contrasts({"default": [0.0, 0, 0], "odf": [20.0, 21, 22]}), "default", "odf").ratio is None


def _asserted(generator: Generator, noise: float, lower: float) -> list[Contrast]:
    runs = {arm: [*np.exp(noise * generator.standard_normal(3))] for arm, _ in ARMS}
    runs["async-fork"] = [value / lower for value in runs["async-fork"]]
    return [one for one in _contrasts(runs) if one.verdict in (LOWER, HIGHER)]


@pytest.mark.parametrize("noise", [0.05, 0.1, 0.3])
def test_of_equal_kernels_few_sweeps_assert_a_difference(noise: float) -> None:
    """One metric; three have up to three times the chance."""
    generator = default_rng(2)
    assert sum(bool(_asserted(generator, noise, 1.0)) for _ in range(300)) <= 15


def test_a_kernel_that_is_twice_as_fast_is_found() -> None:
    generator = default_rng(3)
    found = [{one.new_cell for one in _asserted(generator, 0.1, 2.0)} for _ in range(60)]
    assert sum("async-fork" in one for one in found) >= 55

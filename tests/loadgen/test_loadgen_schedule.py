# SPDX-License-Identifier: Apache-2.0
"""The schedule alone: arrivals and keys against the distributions that they are drawn from.

Seeds are fixed, so these tests give the same verdict every time.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.loadgen.conftest import Generator

DRAWS = 100_000

Floats = NDArray[np.float64]


def gaps(release: Generator, seed: int) -> Floats:
    """Poisson gaps in units of their mean."""
    times = release.schedule(rate=1000, queries=DRAWS, keys=1, arrivals="poisson", seed=seed)["intended_ns"]
    return np.diff(times, prepend=0) / 1e6


def anderson_darling(uniform: Floats) -> float:
    """A^2 of a sample that should be uniform, with no parameter estimated."""
    u = np.sort(uniform)
    i = np.arange(1, len(u) + 1)
    return float(-len(u) - np.mean((2 * i - 1) * (np.log(u) + np.log1p(-u[::-1]))))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_poisson_gaps_are_exponential(release: Generator, seed: int) -> None:
    # 3.857 is exceeded by 1 % of true samples; another distribution of this many exceeds it by far.
    assert anderson_darling(-np.expm1(-gaps(release, seed))) < 3.857
    assert anderson_darling(-np.expm1(-(gaps(release, seed) ** 1.03))) > 3.857


def test_poisson_counts_are_dispersed_as_their_mean(release: Generator) -> None:
    counts = np.bincount((np.cumsum(gaps(release, 1)) / 20).astype(int))[:-1]
    dispersion = counts.var() / counts.mean()
    assert abs(dispersion - 1) < 4 * math.sqrt(2 / len(counts))


def test_poisson_gaps_are_independent_and_stationary(release: Generator) -> None:
    sample = gaps(release, 1)
    for lag in (1, 2, 50):
        assert abs(np.corrcoef(sample[:-lag], sample[lag:])[0, 1]) < 4 / math.sqrt(DRAWS)
    tenths = sample.reshape(10, -1).mean(axis=1)
    assert np.abs(tenths - 1).max() < 4 / math.sqrt(DRAWS / 10)


@pytest.mark.parametrize("rate", [1000, 50_000, 30_000.5, 0.25])
def test_constant_arrivals_are_multiples_of_the_interval(release: Generator, rate: float) -> None:
    times = release.schedule(rate=rate, queries=1000, keys=1)["intended_ns"]
    assert np.abs(times - np.arange(1000) * 1e9 / rate).max() <= 1


def chi_square(observed: NDArray[np.int64], probability: Floats) -> float:
    """In standard deviations above its expectation; bins of few draws, for which it does not hold, share one."""
    rare = probability * observed.sum() < 20
    if rare.any():
        observed = np.append(observed[~rare], observed[rare].sum())
        probability = np.append(probability[~rare], probability[rare].sum())
    expected = probability * observed.sum()
    freedom = len(observed) - 1
    return float((((observed - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom))


def test_uniform_keys(release: Generator) -> None:
    keys = release.schedule(rate=1, queries=DRAWS, keys=1000)["key"]
    assert abs(chi_square(np.bincount(keys, minlength=1000), np.full(1000, 1 / 1000))) < 4


@pytest.mark.parametrize(("mean", "sigma"), [(0.5, 0.125), (0.1, 0.3), (1, 1)])
def test_gaussian_keys_are_normal_cut_off_at_the_ends(release: Generator, mean: float, sigma: float) -> None:
    keys = release.schedule(
        rate=1, queries=DRAWS, keys=100_000, distribution="gaussian", gaussian_mean=mean, gaussian_sigma=sigma
    )["key"]
    edges = np.linspace(0, 1, 21)
    below = np.array([0.5 * (1 + math.erf((x - mean) / sigma / math.sqrt(2))) for x in edges])
    probability = np.diff(below) / (below[-1] - below[0])
    observed = np.bincount((keys / 100_000 * 20).astype(int), minlength=20)
    assert abs(chi_square(observed, probability)) < 4


@pytest.mark.parametrize("theta", [0.5, 0.99, 1, 1.5, 3])
def test_zipf_keys_fall_off_by_rank(release: Generator, theta: float) -> None:
    keys = release.schedule(rate=1, queries=DRAWS, keys=1000, distribution="zipf", zipf_theta=theta)["key"]
    weights = np.arange(1, 1001) ** -float(theta)
    probability = weights / weights.sum()
    # A rank lies a golden section of the range, made coprime to it, after the one before.
    rank = (keys * pow(619, -1, 1000)) % 1000
    assert abs(chi_square(np.bincount(rank, minlength=1000), probability)) < 4


def test_zipf_spreads_hot_keys_over_the_range(release: Generator) -> None:
    keys = release.schedule(rate=1, queries=DRAWS, keys=1_000_000, distribution="zipf")["key"]
    values, counts = np.unique(keys, return_counts=True)
    hottest = np.sort(values[np.argsort(-counts)[:10]])
    assert np.diff(hottest).min() > 1_000_000 / 100
    assert hottest.max() - hottest.min() > 500_000


@pytest.mark.parametrize("distribution", ["uniform", "gaussian", "zipf"])
@pytest.mark.parametrize("keys", [1, 2, 3, 1 << 32])
def test_any_key_range_is_kept_to(load: Generator, distribution: str, keys: int) -> None:
    drawn = load.schedule(rate=1, queries=2000, keys=keys, distribution=distribution)["key"]
    assert drawn.min() >= 0
    assert drawn.max() < keys
    if keys <= 3:
        assert len(np.unique(drawn)) == keys


def test_operations_keep_the_ratio_and_do_not_follow_the_connections(release: Generator) -> None:
    schedule = release.schedule(rate=1, queries=DRAWS, keys=1000, ratio="1:10", connections=2)
    sets = schedule["operation"] == "SET"
    p = 1 / 11
    for chosen in (sets, sets[schedule["connection"] == 0], sets[schedule["connection"] == 1]):
        assert abs(chosen.mean() - p) < 4 * math.sqrt(p * (1 - p) / len(chosen))


def test_inserts_are_new_keys_upward(load: Generator) -> None:
    schedule = load.schedule(rate=1, queries=1000, keys=5000, insert=True, ratio="1:1")
    new = schedule["key"][schedule["operation"] == "SET"]
    assert (np.diff(new) > 0).all()
    assert new.min() >= 5000
    assert schedule["key"][schedule["operation"] == "GET"].max() < 5000


def test_the_seed_decides(load: Generator) -> None:
    options = {"rate": 1000, "queries": 500, "keys": 1 << 20, "arrivals": "poisson", "distribution": "zipf"}
    first, again, other = (load.schedule(**options, seed=seed) for seed in (5, 5, 6))
    for column in ("intended_ns", "key"):
        assert (first[column] == again[column]).all()
        assert (first[column] != other[column]).mean() > 0.5


def test_keys_do_not_depend_on_the_arrivals(load: Generator) -> None:
    options = {"rate": 1000, "queries": 500, "keys": 1 << 20}
    assert (load.schedule(**options)["key"] == load.schedule(**options, arrivals="poisson")["key"]).all()

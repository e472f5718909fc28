# SPDX-License-Identifier: Apache-2.0
"""Percentiles and buckets against definitions written out."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forktail.analysis.statistics import log2_histogram, percentiles, rank

PERCENTS = ("0.1", "7", "50", "90", "99", "99.9", "99.99", "100")


def _nearest_rank(values: list[int], percent: str) -> int:
    """The smallest value that at least `percent` of all values do not exceed."""
    for candidate in sorted(values):
        if Fraction(sum(value <= candidate for value in values), len(values)) >= Fraction(percent) / 100:
            return candidate
    raise AssertionError


@given(st.lists(st.integers(0, 2**44), min_size=1, max_size=200))
def test_percentiles_are_nearest_ranks(values: list[int]) -> None:
    expected = [_nearest_rank(values, percent) for percent in PERCENTS]
    assert percentiles(np.array(values, dtype=np.int64), PERCENTS) == expected


def test_percentiles_worked_by_hand() -> None:
    values = np.array([15, 20, 35, 40, 50], dtype=np.int64)
    assert percentiles(values, ("5", "30", "40", "50", "100")) == [15, 20, 20, 35, 50]
    assert rank(1000, "99.9") == 999
    # 7 % of 100 is 7.000000000000001 in binary fractions.
    assert rank(100, "7") == 7


@pytest.mark.parametrize("percent", ["0", "100.1", "-5"])
def test_a_percentile_out_of_range_is_refused(percent: str) -> None:
    with pytest.raises(ValueError, match="percentile"):
        rank(10, percent)


def test_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentiles(np.array([], dtype=np.int64), ("50",))


@given(st.lists(st.integers(0, 2**44), max_size=200))
def test_buckets_hold_what_they_say(durations: list[int]) -> None:
    buckets = log2_histogram(np.array(durations, dtype=np.int64))
    whole_us = [duration // 1000 for duration in durations]
    for bucket in buckets:
        assert bucket["count"] == sum(bucket["low_us"] <= us <= bucket["high_us"] for us in whole_us)
    assert sum(bucket["count"] for bucket in buckets) == len(durations)


def test_bucket_edges_are_those_of_bcc() -> None:
    edges_us = [0, 1, 2, 3, 4, 15, 16, 31, 32, 63, 64]
    buckets = log2_histogram(np.array([1000 * us + 999 for us in edges_us], dtype=np.int64))
    assert [(bucket["low_us"], bucket["high_us"], bucket["count"]) for bucket in buckets] == [
        (0, 1, 2),
        (2, 3, 2),
        (4, 7, 1),
        (8, 15, 1),
        (16, 31, 2),
        (32, 63, 2),
        (64, 127, 1),
    ]

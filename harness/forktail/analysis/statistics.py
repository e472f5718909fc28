# SPDX-License-Identifier: Apache-2.0
"""Exact percentiles and bcc's histogram, on integer nanoseconds."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]

PERCENTS = {"p50": "50", "p90": "90", "p99": "99", "p999": "99.9", "p9999": "99.99"}
"""The percentiles that are told, by their names in documents; beside them stands the maximum."""


def rank(count: int, percent: str) -> int:
    """The 1-based nearest rank of a percentile among `count` values: the smallest k with k / count >= percent / 100.

    The percentile is a decimal string ("99.9"): binary fractions put some ranks one too high.
    """
    share = Fraction(percent) / 100
    if not 0 < share <= 1:
        raise ValueError(f"a percentile lies in (0, 100], and {percent} does not")
    return -((-count * share.numerator) // share.denominator)


def percentiles(values: Int64, percents: Iterable[str]) -> list[int]:
    """Nearest-rank percentiles of unsorted values: each is a value that occurred, none is interpolated."""
    ranks = [rank(len(values), percent) - 1 for percent in percents]
    if not len(values):
        raise ValueError("no percentile exists of no values")
    parted = np.partition(values, sorted(set(ranks)))
    return [int(parted[index]) for index in ranks]


def log2_bucket(microseconds: Int64) -> Int64:
    """bcc's log2 bucket of each value: bucket i holds [2^(i-1), 2^i - 1], and 0 joins 1 in bucket 1."""
    # frexp's exponent is the bit length, exact for integers below 2^53.
    exponent = np.frexp(microseconds.astype(np.float64))[1]
    return np.maximum(exponent, 1).astype(np.int64)


def log2_histogram(durations_ns: Int64) -> list[dict[str, int]]:
    """bcc's histogram of durations: one entry a bucket, from the first to the last one used."""
    if not len(durations_ns):
        return []
    bucket = log2_bucket(durations_ns // 1000)
    counts = np.bincount(bucket)
    return [
        {"low_us": 0 if i == 1 else 2 ** (i - 1), "high_us": 2**i - 1, "count": int(counts[i])}
        for i in range(int(bucket.min()), len(counts))
    ]

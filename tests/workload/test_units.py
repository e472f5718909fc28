# SPDX-License-Identifier: Apache-2.0
"""Quantities with units: exact both ways, and never without their unit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forktail.units import format_size, format_time, parse_size, parse_time


@pytest.mark.parametrize(
    ("text", "size"),
    [("1B", 1), ("512MiB", 2**29), ("1.5 GiB", 3 * 2**29), ("64GB", 64 * 10**9), (" 1KiB ", 1024)],
)
def test_size(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(("text", "ns"), [("250us", 250_000), ("30s", 30 * 10**9), ("2min", 120 * 10**9), ("0s", 0)])
def test_time(text: str, ns: int) -> None:
    assert parse_time(text) == ns


@pytest.mark.parametrize("text", ["", "12", "MiB", "-1MiB", "1 mib", "1KB", "3s", "1MiB2"])
def test_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "12", "s", "-1s", "1MiB", "1h"])
def test_no_time(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        parse_time(text)


@given(st.integers(min_value=0, max_value=2**50))
def test_written_quantities_read_back_exactly(value: int) -> None:
    assert parse_size(format_size(value)) == value
    assert parse_time(format_time(value)) == value

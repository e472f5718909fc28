# SPDX-License-Identifier: Apache-2.0
"""Quantities with units, as workloads write them: "512MiB", "250us", "10kHz"."""

from __future__ import annotations

import re

_SIZE = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
         "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}  # fmt: skip
_TIME = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9}

_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def _parse(text: str, units: dict[str, int], noun: str, example: str) -> int:
    match = _QUANTITY.fullmatch(text)
    if match is None or match[2] not in units:
        raise ValueError(f"{text!r} is no {noun}: write a number and one of {', '.join(units)}, as in {example!r}")
    return round(float(match[1]) * units[match[2]])


def parse_size(text: str) -> int:
    """Bytes of a size such as "8GiB"; ValueError where the unit is none of a size."""
    return _parse(text, _SIZE, "size", "512MiB")


def parse_time(text: str) -> int:
    """Nanoseconds of a time such as "250us"; ValueError where the unit is none of a time."""
    return _parse(text, _TIME, "time", "30s")


def _format(value: int, units: dict[str, int]) -> str:
    for unit, factor in sorted(units.items(), key=lambda item: -item[1]):
        if value >= factor and value % factor == 0:
            return f"{value // factor}{unit}"
    return f"{value}{next(iter(units))}"


def format_size(size: int) -> str:
    """The shortest exact writing of bytes in binary units: 536870912 is "512MiB"."""
    return _format(size, {unit: factor for unit, factor in _SIZE.items() if unit == "B" or "i" in unit})


def format_time(nanoseconds: int) -> str:
    """The shortest exact writing of nanoseconds: 250000 is "250us"."""
    return _format(nanoseconds, {unit: factor for unit, factor in _TIME.items() if unit != "min"})

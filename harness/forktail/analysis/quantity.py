# SPDX-License-Identifier: Apache-2.0
"""How the analysis writes quantities for people."""

from __future__ import annotations

_TIMES = ((10**9, "s"), (10**6, "ms"), (10**3, "µs"))
_SIZES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def time_text(nanoseconds: float) -> str:
    """Three significant digits in the unit that suits: 9812345 ns is "9.81 ms"."""
    if nanoseconds == 0:
        return "0"
    for factor, unit in _TIMES:
        # A value that three digits would round up to 1000 is better told in the next unit.
        if abs(nanoseconds) >= 0.9995 * factor:
            return f"{significant(nanoseconds / factor)} {unit}"
    return f"{nanoseconds:.0f} ns"


def range_text(low_ns: float, high_ns: float) -> str:
    """Two times as a range, the unit told once where it is the same: "60.3 to 63.1 ms"."""
    low, high = time_text(low_ns), time_text(high_ns)
    number, _, unit = low.partition(" ")
    return f"{number if high.endswith(' ' + unit) else low} to {high}" if low != high else low


def size_text(size: float) -> str:
    """Three significant digits in a binary unit: 536870912 is "512 MiB"."""
    for factor, unit in _SIZES:
        if size >= factor:
            return f"{significant(size / factor)} {unit}"
    return f"{size:.0f} B"


def significant(value: float) -> str:
    """Three significant digits without an exponent, and without zeros that add nothing."""
    if abs(value) >= 100:
        return f"{value:.0f}"
    text = f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"
    return text.rstrip("0").rstrip(".")


def share_text(share: float) -> str:
    """A share in percent; only all of it is "100 %" and only nothing of it is "0 %"."""
    percent = 100 * share
    if 0 < percent < 0.1:
        return "< 0.1 %"
    if 99.9 < percent < 100:
        return "> 99.9 %"
    return f"{percent:.3g} %"


def change_text(change: float) -> str:
    """A change, new over old less one, in percent with its sign: -0.5 is "-50.0 %"."""
    return f"{100 * change:+,.1f} %"


def count_text(count: float) -> str:
    """A whole number with its thousands apart."""
    return f"{count:,.0f}"


def us(nanoseconds: float) -> float:
    """Microseconds, exact to the nanosecond."""
    return round(nanoseconds / 1000, 3)

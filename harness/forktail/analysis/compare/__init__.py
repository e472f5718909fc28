# SPDX-License-Identifier: Apache-2.0
"""The comparison of two sweeps: a pure function of their directories and of thresholds (docs/compare.md)."""

from __future__ import annotations

from pathlib import Path

from forktail.analysis.compare.comparison import Comparison, compare_sides
from forktail.analysis.compare.side import read_side
from forktail.analysis.compare.thresholds import DEFAULT_THRESHOLDS, Thresholds, read_thresholds
from forktail.analysis.compare.verdict import Verdict
from forktail.errors import BadInput

__all__ = ["DEFAULT_THRESHOLDS", "Comparison", "Thresholds", "Verdict", "compare", "read_thresholds"]


def compare(base: Path, new: Path, thresholds: Thresholds, kernels: tuple[str, str] | None = None) -> Comparison:
    """Compare the sweep NEW with the sweep BASE; with `kernels`, one kernel of BASE with another of NEW.

    Raises BadInput where a directory is no sweep, a side has no such kernel, or both sides are the same.
    """
    if base.resolve() == new.resolve() and (kernels is None or kernels[0] == kernels[1]):
        raise BadInput(
            f"{base} is BASE and NEW: give two sweeps, or two kernels of the one with --base-kernel and --new-kernel."
        )
    return compare_sides(read_side(base), read_side(new), thresholds, kernels)

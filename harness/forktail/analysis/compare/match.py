# SPDX-License-Identifier: Apache-2.0
"""Which cell of BASE is compared with which of NEW, and which of their runs were made in turn."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from forktail.analysis.compare.side import MeasuredRun, Side, SideCell
from forktail.errors import BadInput


@dataclass(frozen=True)
class Match:
    """Two cells that are the same in all but what is compared; None where a side has no such cell."""

    base: SideCell | None
    new: SideCell | None

    @property
    def either(self) -> SideCell:
        """The cell of NEW, or of BASE where NEW has none."""
        found = self.new or self.base
        assert found is not None
        return found


def match(base: Side, new: Side, kernels: tuple[str, str] | None) -> list[Match]:
    """The cells of two sides by what they are: kernel, size, threads, engine and whatever else was varied.

    With `kernels`, cells of the first on BASE are matched with cells of the second on NEW. Threads that copy after fork
    are matched where both kernels have them; else a cell without meets each of the others.
    A second measurement of a kernel for the noise floor is compared only when it is asked for by name.
    """
    if kernels is None:
        ours = [cell for cell in base.cells if not cell.again]
        theirs = [cell for cell in new.cells if not cell.again]
    else:
        ours, theirs = _of_kernel(base, "BASE", kernels[0]), _of_kernel(new, "NEW", kernels[1])
    found = []
    met: set[int] = set()
    for cell in ours:
        others = [other for other in theirs if _same(cell, other, across_kernels=kernels is not None)]
        met |= {id(other) for other in others}
        found += [Match(cell, other) for other in others] or [Match(cell, None)]
    return found + [Match(None, other) for other in theirs if id(other) not in met]


def _of_kernel(side: Side, role: str, kernel: str) -> list[SideCell]:
    cells = [cell for cell in side.cells if cell.arm == kernel]
    if not cells:
        raise BadInput(f"{role}, {side.directory}, has no kernel {kernel!r}: it has {', '.join(side.kernels)}.")
    return cells


def _same(one: SideCell, other: SideCell, *, across_kernels: bool) -> bool:
    if one.setting != other.setting:
        return False
    if across_kernels:
        return one.threads is None or other.threads is None or one.threads == other.threads
    return one.kernel == other.kernel and one.threads == other.threads


@dataclass(frozen=True)
class Pairing:
    """The runs of two cells that are compared, each side's in order."""

    base: list[MeasuredRun]
    new: list[MeasuredRun]
    paired: bool
    """Whether run i of both sides was made in the same round, before or after those of all others."""


def pairing(base: SideCell, new: SideCell) -> Pairing:
    """Pairs of runs of the same repeat where the sides were measured in turn; else all runs of both.

    In turn means that each pair was begun before the next: what drifts then meets both runs of a pair alike.
    """
    partners = {run.repeat: run for run in new.runs}
    pairs = [(run, partners[run.repeat]) for run in base.runs if run.repeat in partners]
    spans = []
    for pair in pairs:
        times = [run.started for run in pair if run.started]
        if len(times) == 2:
            spans.append((min(times), max(times)))
    spans.sort()
    in_turn = len(spans) == len(pairs) > 1 and all(earlier[1] < later[0] for earlier, later in pairwise(spans))
    if not in_turn:
        return Pairing(base.runs, new.runs, paired=False)
    return Pairing([one for one, _ in pairs], [other for _, other in pairs], paired=True)

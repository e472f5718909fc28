# SPDX-License-Identifier: Apache-2.0
"""The four verdicts of a comparison, and the exit code of each."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """What a comparison says; the worst of its cells' is that of the whole."""

    PASS = "pass"  # noqa: S105
    """No regress was seen, and none as large as `rule_out` can be there."""
    INCONCLUSIVE = "inconclusive"
    """The runs are too few or too noisy to say either."""
    INFRASTRUCTURE = "infrastructure failure"
    """Something to compare is missing, not valid or not of the same circumstances: nothing is said of the change."""
    REGRESS = "regress"
    """NEW is worse than BASE, by `regress` at least, and not by chance."""

    @property
    def exit_code(self) -> int:
        """The exit code of `forktail compare`."""
        return _EXIT_CODES[self]


_EXIT_CODES = {Verdict.PASS: 0, Verdict.REGRESS: 1, Verdict.INFRASTRUCTURE: 3, Verdict.INCONCLUSIVE: 4}
_RISING = [*Verdict]


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The verdict of a whole: a regress in one part is one, whatever was missing elsewhere; of nothing, a failure."""
    return max(verdicts, key=_RISING.index, default=Verdict.INFRASTRUCTURE)

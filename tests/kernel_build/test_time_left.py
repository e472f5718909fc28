# SPDX-License-Identifier: Apache-2.0
"""The estimate of what is left of a build or a sweep."""

from __future__ import annotations

import pytest

from forktail.cli.kernel import time_left


@pytest.mark.parametrize(
    ("seconds", "done", "total", "told"),
    [
        (60, 500, 2500, "about 4 min left"),
        (600, 6, 12, "about 10 min left"),
        (5, 2400, 2500, "about 1 min left"),
        (60, 10, 2500, ""),
        (60, 500, None, ""),
        (60, 2500, 2500, ""),
        (60, 2600, 2500, ""),
    ],
)
def test_what_is_left_is_estimated_by_what_is_done(seconds: float, done: int, total: int | None, told: str) -> None:
    assert time_left(seconds, done, total) == told

# SPDX-License-Identifier: Apache-2.0
"""Where a slow episode ends, on queries made by hand, and that the figure around the fork shows all of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from tests.analysis.synthetic import RunDirectory

from forktail.analysis.episode import slow_until
from forktail.analysis.figures import latency_over_time
from forktail.analysis.result import derive
from forktail.analysis.run import read_run

MS = 1_000_000


def _until(slow_until_ms: int, again_at_ms: int | None = None) -> float:
    arrivals = np.arange(0, 1000 * MS, MS // 10, dtype=np.int64)
    latencies = np.full(len(arrivals), MS // 20, dtype=np.int64)
    latencies[(arrivals >= 100 * MS) & (arrivals < slow_until_ms * MS)] = 30 * MS
    if again_at_ms is not None:
        latencies[arrivals == again_at_ms * MS] = 20 * MS
    return slow_until(arrivals, latencies, 100 * MS, 900 * MS, MS // 10, MS) / MS


def test_an_episode_lasts_until_its_last_slow_query() -> None:
    assert _until(100) == 101
    assert _until(110) == 109.9
    assert _until(300) == 299.9


def test_a_later_stall_is_another_episode() -> None:
    assert _until(300, again_at_ms=480) == 480
    assert _until(300, again_at_ms=800) == 299.9


def test_queries_beyond_the_window_do_not_count() -> None:
    assert _until(1000) < 900
    nothing = np.zeros(0, dtype=np.int64)
    assert slow_until(nothing, nothing, 5, 9, 1, 2) == 7


def test_the_figure_around_the_fork_shows_the_whole_episode(tmp_path: Path) -> None:
    run = RunDirectory.whole()
    late = 200 * MS
    for query in run.queries:
        since = query.intended - run.fork_start
        if 0 <= since <= late:
            query.latency = 20 * MS
    run.write(tmp_path / "run")
    result = derive(read_run(tmp_path / "run"))
    _, zoom = latency_over_time(result).axes
    assert zoom.get_xlim()[1] >= late / MS

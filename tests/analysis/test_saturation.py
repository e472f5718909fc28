# SPDX-License-Identifier: Apache-2.0
"""A server that cannot serve its load is noticed, and one that only a snapshot overloads is not accused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.analysis.queueing import MS, Pause, Scenario, constant, exponential, fixed, poisson
from tests.analysis.synthetic import FORK, ORIGIN, RunDirectory

from forktail.analysis import analyse
from forktail.analysis.saturation import Saturation, saturation


def _judged(scenario: Scenario, window: tuple[int, int] | None = None) -> Saturation:
    completed, _ = scenario.run()
    sent = scenario.sent()
    normal = np.ones(len(sent), dtype=np.bool_)
    windows = [window] if window else []
    for start, end in windows:
        normal &= (sent < start) | (sent > end)
    return saturation(sent, completed, normal, windows, int(np.median((completed - sent)[normal])))


@pytest.mark.parametrize("load", [0.3, 0.6, 0.9])
def test_a_load_that_is_served_is_no_overload(load: float) -> None:
    intended = poisson(30_000, 1, 1)
    found = _judged(Scenario(intended, exponential(len(intended), load * 1e9 / 30_000, 2)))
    assert not found.falls_behind
    assert not found.queues_hopelessly


@pytest.mark.parametrize("load", [1.1, 1.5, 4.0])
@pytest.mark.parametrize("batches", [False, True])
def test_a_server_that_falls_behind_is_overloaded(load: float, batches: bool) -> None:
    intended = constant(30_000, 1)
    found = _judged(Scenario(intended, fixed(len(intended), load * 1e9 / 30_000), batches=batches))
    assert found.falls_behind
    # A batch's replies count when they are written, so the last batch is missing.
    assert batches or found.completed_per_s == pytest.approx(30_000 / load, rel=0.05)


def test_a_snapshot_that_overloads_the_server_is_no_overload_of_the_load() -> None:
    """At 90 % load a fork of 40 ms leaves a backlog that drains for 360 ms, most of it after a window of 100 ms."""
    intended = constant(30_000, 2)
    start = ORIGIN + 500 * MS
    scenario = Scenario(intended, fixed(len(intended), 30_000), (Pause(start, 40 * MS, FORK),))
    found = _judged(scenario, (start, start + 100 * MS))
    assert not found.falls_behind
    assert not found.queues_hopelessly


def test_a_base_far_above_the_unloaded_time_is_queueing() -> None:
    sent = constant(1000, 1)
    common: tuple[npt.NDArray[np.bool_], list[tuple[int, int]]] = (np.ones(1000, dtype=np.bool_), [])
    late = saturation(sent, sent + 13 * MS, *common, 13 * MS, 50_000)
    assert late.queues
    assert late.queues_hopelessly
    near = saturation(sent, sent + MS, *common, MS, 50_000)
    assert near.queues
    assert not near.queues_hopelessly
    # Nothing was sent to an idle server, so the unloaded time is not known.
    assert saturation(sent, sent + 13 * MS, *common, 13 * MS).unloaded_ns is None


def test_the_answer_of_an_overloaded_run_begins_with_it(tmp_path: Path) -> None:
    run = RunDirectory.whole()
    for index, query in enumerate(run.queries):
        query.latency += index * 200_000
    summary = analyse(run.write(tmp_path / "run"), write=False)
    assert not summary.valid
    assert summary.document["saturation"]["overloaded"]
    assert summary.document["answer"].startswith("The server was overloaded without a snapshot")
    assert any("overloaded" in reason for reason in summary.reasons)

# SPDX-License-Identifier: Apache-2.0
"""A test that may be tried again is one whose failure stays a failure."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.disturbance import MOST_TRIES, Disturbance, Outcome, settle, waited_ns


def _outcome(error: float, disturbance: float = 0.0) -> Outcome:
    return Outcome("it", error, 1.0, disturbance)


@pytest.mark.parametrize(
    ("error", "disturbance", "passes", "explained"),
    [
        (1.0, 0.0, True, True),
        (1.01, 0.0, False, False),
        (1.5, 0.5, True, True),
        (1.51, 0.5, False, False),
        (2.0, 9.0, True, True),
        (2.01, 9.0, False, True),
        (10.01, 9.0, False, False),
    ],
)
def test_a_disturbance_widens_the_tolerance_to_its_double_at_most(
    error: float, disturbance: float, passes: bool, explained: bool
) -> None:
    outcome = _outcome(error, disturbance)
    assert (outcome.passes, outcome.explained) == (passes, explained)


def _tries(outcomes: list[Outcome]) -> int:
    """How many tries were made of those that would have these outcomes."""
    left = list(outcomes)
    settle(lambda: [left.pop(0)])
    return len(outcomes) - len(left)


def test_what_is_wrong_without_a_disturbance_fails_at_once() -> None:
    """Planted: right one time in ten was enough before."""
    made = [_outcome(5.0), _outcome(0.5)]
    with pytest.raises(pytest.fail.Exception, match="try 1: it: off by 5"):
        settle(lambda: [made.pop(0)])
    assert len(made) == 1


def test_a_void_try_is_made_again_and_said_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert _tries([_outcome(5.0, 9.0), _outcome(0.5)]) == 2
    said = capsys.readouterr().out
    assert "try 1 is void: the recorded disturbance explains it: off by 5, allowed 1, disturbed 9" in said
    assert f"try 2 of {MOST_TRIES}: it: off by 0.5" in said


def test_no_more_tries_than_three_are_made() -> None:
    assert MOST_TRIES == 3
    with pytest.raises(pytest.fail.Exception, match="disturbed all of 3 tries"):
        _tries([_outcome(5.0, 9.0)] * 10)


def test_waiting_for_a_cpu_is_recorded() -> None:
    """Two processes that never rest, on one CPU: each waits for about half of the time."""
    cpu = min(os.sched_getaffinity(0))
    program = f"import os; os.sched_setaffinity(0, [{cpu}])\nwhile True: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(2)]
    try:
        deadline = time.monotonic() + 20
        while not all(waited_ns(one.pid) for one in spinning):
            assert time.monotonic() < deadline, "neither was kept waiting"
            time.sleep(0.05)
        disturbance = Disturbance(spinning[0].pid)
        while disturbance.so_far_ns() < 100_000_000:
            assert time.monotonic() < deadline, disturbance.so_far_ns()
            time.sleep(0.05)
    finally:
        for one in spinning:
            one.kill()
            one.wait()
    assert waited_ns(spinning[0].pid) == 0


def test_no_test_tries_more_often() -> None:
    root = Path(__file__).parents[1]
    tried = [path.name for path in root.rglob("test_*.py") if "range(TRIES)" in path.read_text()]
    assert [name for name in tried if name != Path(__file__).name] == []

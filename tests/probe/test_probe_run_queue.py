# SPDX-License-Identifier: Apache-2.0
"""Run-queue delay: two busy processes share one CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.disturbance import Outcome, settle, stolen_ns
from tests.probe.conftest import PREEMPTED, RUN_QUEUE, StartProbe, StartSnapshotter, assert_conserved

SPIN_NS = 1_000_000_000


@pytest.fixture
def busy_cpu() -> Iterator[int]:
    cpu = min(os.sched_getaffinity(0))
    busy = subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, [{cpu}])\nwhile True: pass"])
    yield cpu
    busy.kill()
    busy.wait()


def test_the_delays_add_up_to_the_time_without_the_cpu(
    busy_cpu: int, probe: StartProbe, snapshotter: StartSnapshotter
) -> None:
    """Under a hypervisor, stolen time is missing from both the CPU's time and the run queue's."""
    server = snapshotter(4)
    os.sched_setaffinity(server.pid, {busy_cpu})

    def attempt() -> list[Outcome]:
        follower = probe(server.pid)
        follower.arm()
        stolen = stolen_ns(busy_cpu)
        spun = server.ask(f"spin {SPIN_NS}")
        stolen = stolen_ns(busy_cpu) - stolen
        trailer = follower.stop()
        log = follower.log()
        assert_conserved(trailer, log)
        delays = log.of(RUN_QUEUE)
        during = delays[(delays["start"] >= spun.before) & (delays["start"] + delays["duration"] <= spun.after)]
        assert len(during) >= 2
        assert set(during["context"]) == {PREEMPTED}
        assert set(during["tid"]) == {server.pid}
        waited = int(during["duration"].sum())
        assert spun.value > SPIN_NS // 5
        return [Outcome("waiting for a CPU, ns", abs(waited - spun.value), spun.value / 10, stolen)]

    settle(attempt)


def test_short_delays_are_suppressed_and_counted(
    busy_cpu: int, probe: StartProbe, snapshotter: StartSnapshotter
) -> None:
    server = snapshotter(4)
    os.sched_setaffinity(server.pid, {busy_cpu})
    follower = probe(server.pid, "--run-queue-min-us", "60000000")
    follower.arm()
    server.ask(f"spin {SPIN_NS // 4}")
    trailer = follower.stop()
    assert_conserved(trailer, follower.log())
    counts = trailer["by_kind"]["run_queue"]
    assert counts["suppressed"] == counts["seen"] > 0

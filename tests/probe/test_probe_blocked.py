# SPDX-License-Identifier: Apache-2.0
"""Uninterruptible sleep: a process that waits for its disk."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest
from tests.probe.conftest import BLOCKED, RUN_QUEUE, WAITING_FOR_IO, StartProbe, StartSnapshotter, assert_conserved

SYNCS = 50


@pytest.fixture
def on_a_disk(snapshotter_program: Path) -> None:
    """Whoever writes to memory waits for no disk."""
    device = subprocess.run(
        ["findmnt", "-no", "SOURCE", "-T", snapshotter_program], check=True, capture_output=True, text=True
    ).stdout
    if not device.startswith("/dev/"):
        pytest.skip(f"{snapshotter_program} is on {device.strip()}, which is no disk: set --basetemp")


@pytest.mark.usefixtures("on_a_disk")
@pytest.mark.parametrize("avoid", [None, "raw_tp"])
def test_a_wait_for_the_disk_is_blocked_and_no_run_queue_delay(
    avoid: str | None, probe: StartProbe, snapshotter: StartSnapshotter
) -> None:
    """Blocked until woken and run-queue delay from then on: together all the time without the CPU, and no more."""
    server = snapshotter(1)
    follower = probe(server.pid, *(["--avoid", avoid] if avoid else []))
    follower.arm()
    synced = server.ask(f"sync {SYNCS}")
    trailer = follower.stop()
    log = follower.log()
    assert_conserved(trailer, log)
    blocked, delays = (
        events[(events["start"] >= synced.before) & (events["start"] + events["duration"] <= synced.after)]
        for events in (log.of(BLOCKED), log.of(RUN_QUEUE))
    )
    assert len(blocked) >= SYNCS
    assert set(blocked["tid"]) == set(blocked["tgid"]) == {server.pid}
    assert set(blocked["aux"]) <= {0, WAITING_FOR_IO}
    assert WAITING_FOR_IO in blocked["aux"]
    # Disjoint: each delay begins when the sleep before it ends.
    both = sorted([*blocked[["start", "duration"]].tolist(), *delays[["start", "duration"]].tolist()])
    for (start, duration), (following, _) in itertools.pairwise(both):
        assert start + duration <= following
    # The kernel counts a little of each switch as the process's own time, and stolen time as no one's.
    assert 0.8 * synced.value <= sum(duration for _, duration in both) <= synced.after - synced.before


def test_a_sleep_of_its_own_accord_is_not_blocked(probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    """A server that waits for a command is idle, however long it waits."""
    server = snapshotter(1)
    follower = probe(server.pid)
    follower.arm()
    for _ in range(20):
        server.ask("touch 1")
    trailer = follower.stop()
    assert_conserved(trailer, follower.log())
    assert trailer["by_kind"]["blocked"]["seen"] == 0
    assert trailer["by_kind"]["run_queue"]["seen"] > 0

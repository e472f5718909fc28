# SPDX-License-Identifier: Apache-2.0
"""Write faults of the server: each one, and of nobody else."""

from __future__ import annotations

import numpy as np
import pytest
from tests.probe.conftest import (
    FAULT,
    INTERRUPTION,
    PAGE,
    PRESENCE_KNOWN,
    PRESENT,
    StartProbe,
    StartSnapshotter,
    assert_conserved,
)


@pytest.mark.parametrize("pages", [1, 1000, 65536])
def test_every_copy_on_write_fault(pages: int, any_probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    server = snapshotter(256)
    probe = any_probe(server.pid)
    probe.arm()
    # The child writes too: its faults at the same addresses must not show.
    server.ask("fork 1000")
    touched = server.ask(f"touch {pages}")
    server.ask("release")
    probe.expect("fork")
    probe.expect("window_end")
    trailer = probe.stop()
    log = probe.log()
    assert_conserved(trailer, log)
    assert trailer["unmatched"]["fault"] == 0
    faults = log.faults_in(server.memory, 65536)
    assert np.array_equal(faults["context"] // PAGE, server.memory // PAGE + np.arange(pages))
    assert set(faults["tgid"]) == set(faults["tid"]) == {server.pid}
    if probe.header["probes"]["fault"]["probe"] == "tp_btf:page_fault_user":
        assert set(faults["aux"]) == {PRESENT | PRESENCE_KNOWN}
    # The clock is the process's own: every fault lies within the writing, and none overlaps the next.
    ends = faults["start"] + faults["duration"]
    assert touched.before <= faults["start"][0]
    assert ends[-1] <= touched.after
    assert (ends[:-1] <= faults["start"][1:]).all()


def test_a_thread_born_inside_the_window(probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    server = snapshotter(16)
    follower = probe(server.pid)
    follower.arm()
    server.ask("fork 0")
    server.ask("thread 500")
    server.ask("release")
    follower.expect("fork")
    follower.expect("window_end")
    trailer = follower.stop()
    log = follower.log()
    assert_conserved(trailer, log)
    assert trailer["unmatched"]["fault"] == 0
    faults = log.faults_in(server.memory, 500)
    assert len(faults) == 500
    (tid,) = set(faults["tid"])
    assert tid != server.pid
    assert set(faults["tgid"]) == {server.pid}


def test_page_tables_allocated_in_faults(probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    """The approximation of an interruption; where the copy itself can be probed, growth is none."""
    server = snapshotter(16)
    follower = probe(server.pid)
    follower.arm()
    server.ask("fork 0")
    server.ask("touch 1000")
    grown = server.ask("grow 50")
    server.ask("release")
    follower.expect("fork")
    follower.expect("window_end")
    assert_conserved(follower.stop(), follower.log())
    interruptions = follower.log().of(INTERRUPTION)
    assert len(follower.log().faults_in(server.memory, 1000)) == 1000
    inside = interruptions[(interruptions["start"] >= grown.before) & (interruptions["start"] < grown.after)]
    if follower.header["probes"]["interruption"]["label"] == "approximate":
        assert list(inside["context"]) == [grown.value + table * (2 << 20) for table in range(50)]
        faults = follower.log().of(FAULT)
        assert set(zip(inside["start"], inside["duration"], strict=True)) <= set(
            zip(faults["start"], faults["duration"], strict=True)
        )
    else:
        assert not len(inside)


def test_a_threshold_suppresses_and_counts(probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    server = snapshotter(16)
    follower = probe(server.pid, "--fault-min-us", "1000000")
    follower.arm()
    server.ask("fork 0")
    server.ask("touch 1000")
    server.ask("release")
    follower.expect("fork")
    follower.expect("window_end")
    trailer = follower.stop()
    assert_conserved(trailer, follower.log())
    faults = trailer["by_kind"]["fault"]
    assert faults["seen"] == faults["suppressed"] >= 1000


def test_only_what_is_asked_for(probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    server = snapshotter(16)
    follower = probe(server.pid, "--measure", "page_table_copy")
    assert set(follower.header["probes"]) == {"fork", "page_table_copy", "window_end"}
    follower.arm()
    server.ask("fork 0")
    server.ask("touch 100")
    server.ask("release")
    follower.expect("fork")
    follower.expect("window_end")
    trailer = follower.stop()
    seen = {name for name, counts in trailer["by_kind"].items() if counts["seen"]}
    assert seen == {"fork", "page_table_copy", "child_exit", "window_end"}

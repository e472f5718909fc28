# SPDX-License-Identifier: Apache-2.0
"""Nothing is lost unseen: a reader that stands still fills the ring buffer."""

from __future__ import annotations

import os
import signal

import pytest
from tests.probe.conftest import CHILD_EXIT, FAULT, FORK, WINDOW_END, StartProbe, StartSnapshotter, assert_conserved

PAGES = 40_000


@pytest.mark.parametrize(("strict", "code"), [((), 0), (("--strict",), 1)])
def test_a_starved_ring_buffer(
    strict: tuple[str, ...], code: int, any_probe: StartProbe, snapshotter: StartSnapshotter
) -> None:
    server = snapshotter(PAGES // 256 + 1)
    # 1 MiB holds 18,724 records of 48 bytes with 8 of the ring's own.
    probe = any_probe(server.pid, "--buffer-mib", "1", *strict)
    probe.arm()
    server.ask("fork 0")
    os.kill(probe.process.pid, signal.SIGSTOP)
    server.ask(f"touch {PAGES}")
    os.kill(probe.process.pid, signal.SIGCONT)
    probe.expect("fork")
    server.ask("release")
    probe.expect("window_end")
    trailer = probe.stop(code)
    log = probe.log()
    assert_conserved(trailer, log)
    assert trailer["by_kind"]["fault"]["seen"] >= PAGES
    # What the window is told by does not share the buffer with what fills it.
    assert (len(log.of(FORK)), len(log.of(CHILD_EXIT)), len(log.of(WINDOW_END))) == (1, 1, 1)
    assert PAGES - 18_724 <= trailer["events"]["dropped"] < PAGES
    assert 10_000 < len(log.of(FAULT)) <= 18_800
    assert "events were dropped" in probe.errors()


def test_strict_without_a_loss(probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    server = snapshotter(16)
    follower = probe(server.pid, "--strict")
    follower.arm()
    server.ask("fork 0")
    server.ask("touch 2000")
    server.ask("release")
    follower.expect("fork")
    follower.expect("window_end")
    trailer = follower.stop()
    assert trailer["events"]["dropped"] == 0
    assert not any(trailer["unmatched"].values())
    assert follower.errors() == ""

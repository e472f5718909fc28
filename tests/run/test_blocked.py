# SPDX-License-Identifier: Apache-2.0
"""A server that waits for its disk while it is snapshotted: the time is the disk's, and not the CPU's."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.run.conftest import Start

from forktail.analysis.eventlog import Kind, ends, read_event_log
from forktail.analysis.window import snapshots

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="eBPF probes need root")


def test_fsync_by_the_server_is_told_as_blocked(start: Start, tiny: Path, tmp_path: Path) -> None:
    """With `appendfsync always` the thread that serves calls fsync before it replies."""
    synced = ["--set", "server.config.appendonly='yes'", "--set", "server.config.appendfsync='always'"]
    # Slow enough for every disk; SETs alone are written.
    slow = ["--set", "load.rate=200", "--set", "server.config.rdb-key-save-delay='30'"]
    code, output, errors = start("run", tiny, "--out", tmp_path / "out", "--json", *synced, *slow).finish(120)
    assert code in (0, 1), errors
    summary = json.loads(output)
    log = read_event_log(tmp_path / "out" / "events.bin")
    (window,) = snapshots(log, 0)
    blocked = log.of(Kind.BLOCKED)
    blocked = blocked[(blocked["tid"] == log.server) & (blocked["start"] > window.fork_end_ns)]
    blocked = blocked[ends(blocked) <= window.end_ns]
    arrived = summary["queries"]["snapshot"]["count"]
    # Queries that come together are synced together; half of them are GETs, at the most.
    assert len(blocked) > arrived / 20 > 1
    assert summary["attribution"]["share"]["blocked"] > 0
    assert "blocked" in (tmp_path / "out" / "report.html").read_text()

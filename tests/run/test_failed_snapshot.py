# SPDX-License-Identifier: Apache-2.0
"""A snapshot that fails as one whose page tables a kernel cannot copy does: its child is killed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from tests.run.conftest import Start

from forktail import rundir

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="eBPF probes need root")


def test_a_snapshot_whose_child_is_killed_is_reported_as_failed(start: Start, tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    # A millisecond a key keeps the child at work for half a minute.
    slow = ["--set", "server.config.rdb-key-save-delay='1000'"]
    command = start("run", tiny, "--out", out, "--json", *slow)
    command.wait_for_load()
    server = command.pid_of("redis-server")
    children = Path(f"/proc/{server}/task/{server}/children")
    command.wait_for(lambda: children.read_text().split())
    time.sleep(0.2)
    os.kill(int(children.read_text().split()[0]), signal.SIGKILL)
    code, output, errors = command.finish()
    assert code == 1, errors
    summary = json.loads(output)
    assert any("Snapshot 1 failed: its child was killed by SIGKILL" in reason for reason in summary["reasons"])
    assert "its child was killed by SIGKILL" in (out / rundir.REPORT).read_text()

# SPDX-License-Identifier: Apache-2.0
"""The other closed loop as a negative control, wherever it is built: memtier_benchmark misses the triangle too."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from tests.loadgen.conftest import Redis
from tests.loadgen.test_loadgen_truth import STALL_S, Stop

MEMTIER = os.environ.get("FORKTAIL_MEMTIER") or shutil.which("memtier_benchmark")
SECONDS = 8


@pytest.mark.skipif(MEMTIER is None, reason="memtier_benchmark is neither FORKTAIL_MEMTIER nor on PATH")
def test_memtier_misses_the_triangle(redis: Redis, tmp_path: Path) -> None:
    """Each of its connections has one query under way during the stall, and those are far less than 1 %."""
    assert MEMTIER is not None
    report = tmp_path / "memtier.json"
    stopping = Stop(redis.process, after_s=2)
    start = time.monotonic()
    subprocess.run(
        [MEMTIER, "--server=127.0.0.1", f"--port={redis.port}", "--clients=50", "--threads=1", "--ratio=1:0",
         f"--test-time={SECONDS}", "--rate-limiting=200", f"--json-out-file={report}", "--hide-histogram"],
        capture_output=True, check=True, timeout=60,
    )  # fmt: skip
    duration = time.monotonic() - start
    stopping.join()
    totals = json.loads(report.read_text())["ALL STATS"]["Totals"]
    assert totals["Max Latency"] > 0.8 * 1000 * STALL_S, "the server was not stopped during the benchmark"
    truth_ms = 1000 * (stopping.took_s - 0.01 * duration)
    assert totals["Percentile Latencies"]["p99.00"] < truth_ms / 4

# SPDX-License-Identifier: Apache-2.0
"""Wall time of the quick workload, fill and report included, and what the measurement itself cost."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
GOAL_S = 90


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "quick"
        begin = time.monotonic()
        result = subprocess.run(
            [Path(sys.executable).with_name("forktail"), "run", ROOT / "workloads" / "quick.toml", "--out", out],
            stdout=subprocess.DEVNULL,
        )
        wall_s = time.monotonic() - begin
        if result.returncode not in (0, 1):
            sys.exit(result.returncode)
        manifest = json.loads((out / "run.json").read_text())
        summary = json.loads((out / "summary.json").read_text())
        load = json.loads((out / "load.json").read_text())
    fill = manifest["server"]["fill"]
    print(f"quick workload: {wall_s:.1f} s of wall time (goal: under {GOAL_S} s), valid: {summary['valid']}")
    print(f"  fill: {fill['keys']:,} keys in {fill['seconds']:.2f} s, {fill['keys_per_s']:,.0f} keys/s")
    cost = load["cost"]
    per_query_us = (cost["user_s"] + cost["system_s"]) / load["completed"] * 1e6
    print(
        f"  load: {load['completed']:,} queries, rate error {load['rate_error']:.5%}, {per_query_us:.1f} us CPU a query"
    )
    print(
        f"  send lag: p50 {load['lag_us']['p50']} us, p99 {load['lag_us']['p99']} us, p99.9 {load['lag_us']['p999']} us"
    )


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""A generator that is stopped in the middle of a real run: what it caused is reported as its own, or withheld."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.run.conftest import TINY, Start

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="eBPF probes need root")


def _stopped(start: Start, out: Path, seconds: float, *settings: str) -> tuple[dict[str, Any], int, int]:
    """A run whose generator stands still among the normal queries; its summary, and from when to when, ns."""
    workload = out.with_suffix(".toml")
    workload.write_text(TINY)
    command = start("run", workload, "--out", out, "--json", *settings)
    pid = command.pid_of("forktail-load")
    command.wait_for(lambda: [*command.directory.rglob("*.partial/queries.bin*")])
    time.sleep(0.75)
    # The fill's generator has the same name and is gone by now.
    pid = command.pid_of("forktail-load")
    os.kill(pid, signal.SIGSTOP)
    begun = time.monotonic_ns()
    time.sleep(seconds)
    ending = time.monotonic_ns()
    os.kill(pid, signal.SIGCONT)
    code, output, errors = command.finish(90)
    assert code in (0, 1), errors
    return json.loads(output), begun, ending


def test_a_stop_behind_full_sockets_is_the_generators_lag(start: Start, tmp_path: Path) -> None:
    settings = ("server.value_size=256KiB", "server.size=64MiB", "load.rate=1000", "load.clients=2")
    out = tmp_path / "run"
    summary, begun, ending = _stopped(start, out, 0.4, *(word for one in settings for word in ("--set", one)))
    queries = pd.read_parquet(out / "queries.parquet")
    due = queries[(queries["intended_ns"] >= begun) & (queries["intended_ns"] < ending)]
    assert len(due) > 300
    own = due["lag_ns"] - due["held_ns"]
    assert (own >= ending - due["intended_ns"] - 1_000_000).all()
    assert (due["owed_ns"] >= own).all()
    assert not summary["valid"]
    assert any("The generator was late" in reason for reason in summary["reasons"])
    assert summary["queries"]["normal"]["p99_us"] is None
    assert "rises" not in summary["answer"]


def test_a_maximum_that_the_generator_made_is_withheld(start: Start, tmp_path: Path) -> None:
    """A short stop leaves p99 alone but is the maximum, and the queries that its burst kept waiting owe it too."""
    summary, begun, ending = _stopped(start, tmp_path / "run", 0.08)
    normal = summary["queries"]["normal"]
    stop_us = (ending - begun) / 1000
    assert summary["load"]["lag_max_us"] >= 0.98 * stop_us
    queries = pd.read_parquet(tmp_path / "run" / "queries.parquet")
    of_class = queries[(queries["class"] == "normal") & queries["latency_ns"].notna()]
    slowest = of_class["latency_ns"].max()
    without = (of_class["latency_ns"] - of_class["owed_ns"]).max()
    if slowest - without > 0.1 * slowest:
        assert normal["max_us"] is None
        assert "load generator's own lateness" in normal["withheld"]["max"]
    else:
        # Another query was as slow for the server's sake: the maximum is its own, and owes the generator nothing.
        assert normal["max_us"] == pytest.approx(slowest / 1000)
    assert np.isclose(normal["lag_effect_us"]["max"], (slowest - without) / 1000, atol=0.002)

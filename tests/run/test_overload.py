# SPDX-License-Identifier: Apache-2.0
"""A real server under a load that it cannot serve, and under one that it can."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.run.conftest import Start

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="eBPF probes need root")


def _summary(start: Start, tiny: Path, out: Path, *settings: str) -> dict[str, Any]:
    words = [word for setting in settings for word in ("--set", setting)]
    code, output, errors = start("run", tiny, "--out", out, "--json", *words).finish(120)
    assert code in (0, 1), errors
    document: dict[str, Any] = json.loads(output)
    return document


def test_an_overloaded_server_makes_the_run_invalid_and_is_named(start: Start, tiny: Path, tmp_path: Path) -> None:
    """One thread that writes 64 KiB values cannot take 40,000 of them a second: that is 2.6 GB/s through a socket."""
    settings = ("load.rate=40000", "server.value_size=64KiB", "server.size=32MiB")
    summary = _summary(start, tiny, tmp_path / "run", *settings)
    assert not summary["valid"]
    assert summary["saturation"]["overloaded"], summary["saturation"]
    assert any("overloaded without a snapshot" in reason for reason in summary["reasons"]), summary["reasons"]
    assert summary["answer"].startswith("The server was overloaded")


def test_a_load_that_is_served_is_no_overload(start: Start, tiny: Path, tmp_path: Path) -> None:
    summary = _summary(start, tiny, tmp_path / "run")
    assert summary["saturation"]["unloaded_us"] > 0
    assert not summary["saturation"]["overloaded"], summary["saturation"]
    assert not any("overloaded" in reason for reason in summary["reasons"])

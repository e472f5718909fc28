# SPDX-License-Identifier: Apache-2.0
"""The whole way of the data: a real server, real load, a real BGSAVE, real kernel events, a classified report."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.run.conftest import Start

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="eBPF probes need root")


@pytest.fixture
def finished(start: Start, tiny: Path, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A run directory of 256 MiB and a summary; on a crowded host the generator may be late, so up to three tries."""
    for attempt in range(3):
        out = tmp_path / f"out{attempt}"
        code, output, errors = start("run", tiny, "--out", out, "--json", "--set", "server.size=256MiB").finish(120)
        assert code in (0, 1), errors
        summary = json.loads(output)
        if code == 0:
            break
    assert summary["valid"], summary["reasons"]
    return out, summary


def test_a_run_tells_the_truth(finished: tuple[Path, dict[str, Any]]) -> None:
    _, summary = finished
    fork, info = summary["fork"], summary["info"]
    assert fork["duration_us"] == pytest.approx(info["latest_fork_usec"], rel=0.10)
    assert 0.5 * fork["duration_us"] < fork["page_table_copy_us"] <= fork["duration_us"]

    queries, load = summary["queries"], summary["load"]
    counted = queries["warmup"]["count"] + queries["normal"]["count"] + queries["snapshot"]["count"]
    assert counted == load["intended"] == load["sent"] == load["completed"]
    assert queries["snapshot"]["count"] > 0
    # A constant rate makes the classes' sizes known: the window's length times the rate, but for the edges.
    window_s = (summary["window"]["end_ns"] - summary["window"]["start_ns"]) / 1e9
    assert queries["snapshot"]["count"] == pytest.approx(window_s * 2_000, abs=2)
    # A query that arrives as the fork begins waits for its end.
    assert queries["snapshot"]["max_us"] >= 0.9 * fork["duration_us"]

    assert summary["events"]["dropped"] == 0
    assert summary["probes"]["fork"]
    assert summary["out_of_service_us"] >= fork["duration_us"]


def test_the_run_directory_is_whole(finished: tuple[Path, dict[str, Any]]) -> None:
    run, summary = finished
    names = {path.name for path in run.iterdir()}
    assert names >= {
        "workload.toml", "environment.json", "info.jsonl", "queries.bin", "load.json", "events.bin", "probe.json",
        "run.json", "summary.json", "report.html", "queries.parquet", "events.parquet",
    }  # fmt: skip
    assert len([name for name in names if name.endswith(".png")]) >= 3
    assert not list(run.rglob("*.rdb"))
    assert json.loads((run / "summary.json").read_text()) == summary
    assert not run.with_name(run.name + ".partial").exists()


def test_report_makes_the_same_result_again(finished: tuple[Path, dict[str, Any]], start: Start) -> None:
    run, summary = finished
    for derived in ("summary.json", "report.html", "queries.parquet"):
        (run / derived).unlink()
    code, output, errors = start("report", run, "--json").finish()
    assert code == 0, errors
    assert json.loads(output) == summary
    assert (run / "report.html").exists()


@pytest.mark.parametrize("spoil", ["truncated", "foreign", "partial", "lacking"])
def test_report_refuses_what_is_no_whole_run(
    finished: tuple[Path, dict[str, Any]], start: Start, tmp_path: Path, spoil: str
) -> None:
    run, _ = finished
    copy = tmp_path / ("copy.partial" if spoil == "partial" else "copy")
    shutil.copytree(run, copy)
    named = {
        "truncated": "queries.bin",
        "foreign": "run.json",
        "partial": "did not finish",
        "lacking": "load.json",
    }
    match spoil:
        case "truncated":
            os.truncate(copy / "queries.bin", (copy / "queries.bin").stat().st_size - 7)
        case "foreign":
            (copy / "run.json").write_text('{"schema": "something.else/1"}')
        case "lacking":
            (copy / "load.json").unlink()
    code, _, errors = start("report", copy).finish()
    assert code == 2, errors
    assert named[spoil] in errors
    assert "Traceback" not in errors


def test_doctor(start: Start) -> None:
    code, output, errors = start("doctor", "--json").finish()
    assert code == 0, errors
    diagnosis = json.loads(output)
    assert diagnosis["able"]
    probes = {measurement["name"]: measurement["probe"] for measurement in diagnosis["measurements"]}
    assert probes["fork"]
    assert probes["window_end"]


def test_doctor_tells_what_is_missing(start: Start) -> None:
    code, output, _ = start("doctor", PATH="/nonexistent").finish()
    assert code == 3
    assert "redis-server is not on PATH" in output

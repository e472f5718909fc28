# SPDX-License-Identifier: Apache-2.0
"""The generators of others: found, driven, asked for their result, and ended with the run."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.run.conftest import Start

from forktail.errors import BadInput, EnvironmentLacks, RunFailed
from forktail.measure import memtier
from forktail.measure.generator import PEERS, find_generator
from forktail.measure.redis_benchmark import Batches
from forktail.workload import Load, Workload

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="eBPF probes need root")
EACH = [
    pytest.param(name, marks=pytest.mark.skipif(not shutil.which(name), reason=f"{name} is not on PATH"))
    for name in PEERS
]


def _calling_itself(directory: Path, words: str) -> str:
    path = directory / "a-generator"
    path.write_text(f"#!/bin/sh\necho '{words}'\n")
    path.chmod(0o755)
    return str(path)


def _load(generator: Any, path: str = "") -> Workload:
    return Workload(load=Load(generator=generator, path=path))


@pytest.mark.parametrize(
    ("generator", "words", "version"),
    [
        ("memtier_benchmark", "memtier_benchmark v=2.3.0 sha=1655c39a:0 bits=64", "2.3.0"),
        ("memtier_benchmark", "memtier_benchmark 2.4.1", "2.4.1"),
        ("redis-benchmark", "redis-benchmark 7.0.15", "7.0.15"),
        ("redis-benchmark", "valkey-benchmark 8.0.1 (git:00000000)", "8.0.1"),
    ],
)
def test_a_generator_is_known_by_what_it_calls_itself(tmp_path: Path, generator: str, words: str, version: str) -> None:
    found = find_generator(_load(generator, _calling_itself(tmp_path, words)))
    assert found is not None
    assert found.version == version


@pytest.mark.parametrize(
    ("generator", "words", "kind", "sentence"),
    [
        ("memtier_benchmark", "memtier_benchmark 2.1.1", EnvironmentLacks, "2.3 is the first that tells its result"),
        ("memtier_benchmark", "redis-benchmark 7.0.15", BadInput, "does not call itself a memtier_benchmark"),
        ("redis-benchmark", "redis-benchmark 5.0.10", EnvironmentLacks, "6.2 is the first that prints a histogram"),
        ("redis-benchmark", "nothing", BadInput, "does not call itself a redis-benchmark: set load.path to one"),
    ],
)
def test_another_program_is_refused(
    tmp_path: Path, generator: str, words: str, kind: type[Exception], sentence: str
) -> None:
    with pytest.raises(kind, match=sentence):
        find_generator(_load(generator, _calling_itself(tmp_path, words)))


@pytest.mark.parametrize("name", PEERS)
def test_a_missing_program_is_named_with_its_mend(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(EnvironmentLacks, match=rf"{name} is not on PATH: .*, or set load.path"):
        find_generator(_load(name))
    with pytest.raises(BadInput, match=r"load.path '/nonexistent/x' is no program that can be run: mend the path"):
        find_generator(_load(name, "/nonexistent/x"))


BATCH = b"""\
SET: rps=0.0 (overall: 0.0) avg_msec=0.000 (overall: 0.000)\r                    \r====== SET ======
  1000 requests completed in 0.25 seconds
  10 parallel clients
Latency by percentile distribution:
0.000% <= 0.023 milliseconds (cumulative count 4)
50.000% <= 0.071 milliseconds (cumulative count 510)
99.900% <= 8.711 milliseconds (cumulative count 1000)
100.000% <= 8.711 milliseconds (cumulative count 1000)

Cumulative distribution of latencies:
87.400% <= 0.103 milliseconds (cumulative count 874)
99.100% <= 5.103 milliseconds (cumulative count 991)
100.000% <= 9.103 milliseconds (cumulative count 1000)

Summary:
  throughput summary: 4000.00 requests per second
  latency summary (msec):
          avg       min       p50       p95       p99       max
        0.203     0.016     0.071     0.199     4.215     8.711
"""


def test_a_batch_is_read_as_redis_benchmark_prints_it() -> None:
    batches = Batches()
    now_ns = 10**9
    for line in (BATCH + BATCH[:300]).split(b"\n"):
        batches.take(line, now_ns)
    assert batches.whole == [
        {
            "start_ns": 750_000_000,
            "end_ns": 1_000_000_000,
            "count": 1000,
            "max_us": 8711.0,
            # The distribution's last step lies above the maximum, which is known better.
            "points": [[23.0, 4], [71.0, 510], [103.0, 874], [5103.0, 991], [8711.0, 1000]],
        }
    ]


def test_seconds_are_moved_to_the_runs_clock() -> None:
    stats = {
        "Runtime": {"Start time": 2_000_500, "Finish time": 2_002_000},
        "Gets": {"Misses/sec": 2.0},
        "Totals": {
            "Count": 30,
            "Ops/sec": 20.0,
            "Max Latency": 7.5,
            "Connection Errors": 0,
            "Percentile Latencies": {"p50.00": 0.5, "p90.00": 1, "p99.00": 5.0, "p99.90": 7.5, "p99.99": 7.5},
            "Time-Serie": {"1": {"Count": 0}, "0": {"Count": 30, "Max Latency": 7.487, "p99.00": 1.0}},
        },
    }
    told = memtier.summary({"ALL STATS": stats}, wall_ns=2_000 * 10**9, error_ns=5)
    assert (told["start_ns"], told["end_ns"], told["completed"], told["misses"]) == (500_000_000, 2 * 10**9, 30, 3)
    assert told["latency_us"] == {"p50": 500, "p90": 1000, "p99": 5000, "p999": 7500, "p9999": 7500, "max": 7500}
    first, second = told["intervals"]
    assert first == {
        "start_ns": 500_000_000, "end_ns": 1_500_000_000, "count": 30, "max_us": 7487.0, "points": None,
    }  # fmt: skip
    assert (second["end_ns"], second["count"], second["max_us"]) == (2 * 10**9, 0, None)
    with pytest.raises(RunFailed, match=r"not as version 2\.3 writes it"):
        memtier.summary({"ALL STATS": {"Runtime": {}}}, 0, 0)


@NEEDS_ROOT
@pytest.mark.parametrize("generator", EACH)
def test_a_whole_run(start: Start, tiny: Path, tmp_path: Path, generator: str) -> None:
    out = tmp_path / "out"
    arguments = ["--out", out, "--json", "--set", f"load.generator={generator}"]
    code, output, errors = start("run", tiny, *arguments).finish(120)
    assert code == 0, errors
    summary = json.loads(output)
    load, queries = summary["load"], summary["queries"]
    assert load["generator"] == generator
    assert load["closed_loop"]
    assert load["notes"]
    assert "coordinated omission" in summary["answer"]
    assert any("is a closed loop" in warning for warning in summary["warnings"])
    whole, normal, snapshot = (queries[name] for name in ("whole_run", "normal", "snapshot"))
    assert whole["count"] == load["completed"] == sum(queries[c]["count"] for c in ("warmup", "normal", "snapshot"))
    assert 0 < whole["p50_us"] <= whole["p99_us"] <= whole["max_us"]
    assert max(normal["max_us"], snapshot["max_us"]) <= whole["max_us"] * 1.01
    # The window lies within what its class covers, but for the edges.
    assert snapshot["covers_ms"] >= summary["window"]["duration_ms"] - 2 * load["interval_error_us"] / 1000
    assert (snapshot["p99_us"] is None) == (generator == "memtier_benchmark")
    assert load["intended"] is None
    assert load["lag_p99_us"] is None
    assert summary["attribution"] is None
    assert not (out / "queries.bin").exists()
    assert list((out / "generator").iterdir())
    # Every query was of a key that had been filled in, so the server holds as many as before.
    for when in ("before", "after"):
        info = json.loads((out / "server" / f"info-{when}.json").read_text())
        assert info["db0"]["keys"] == summary["server"]["keys"]
    report = (out / "report.html").read_text()
    assert "closed loop" in report
    again_code, again, errors = start("report", out, "--json").finish()
    assert again_code == 0, errors
    assert json.loads(again) == summary


@NEEDS_ROOT
@pytest.mark.parametrize("generator", EACH)
def test_a_generator_that_is_killed_fails_the_run(start: Start, tiny: Path, tmp_path: Path, generator: str) -> None:
    command = start("run", tiny, "--out", tmp_path / "out", "--set", f"load.generator={generator}")
    # Asked for its version it has run, and ended, before.
    command.wait_for(lambda: list(tmp_path.rglob("*.partial/generator")))
    os.kill(command.pid_of(generator[:15]), signal.SIGKILL)
    code, _, errors = command.finish()
    assert code == 1, errors
    assert generator in errors
    assert "Traceback" not in errors
    assert command.orphans() == {}
    assert not list(tmp_path.rglob("run.json"))

# SPDX-License-Identifier: Apache-2.0
"""The load of a closed loop: classes of intervals, percentiles of histograms, and null for what nobody told."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.analysis.synthetic import FORK, INTERRUPTION, MS, ORIGIN, RUN_QUEUE, Event, RunDirectory, S

from forktail.analysis import analyse
from forktail.analysis.closedload import ClosedLoad, read_closed_load
from forktail.errors import BadInput

Load = dict[str, Any]


def _interval(second: float, count: int = 100, max_us: float | None = 900.0, points: Any = None) -> Load:
    start = ORIGIN + round(second * S)
    return {"start_ns": start, "end_ns": start + S, "count": count, "max_us": max_us, "points": points}


def _seconds() -> Load:
    """What memtier_benchmark tells: seconds, of which the run's window, from 1 to 2 s, touches the second and third."""
    maxima = (700.0, 12_000.0, 900.0, 800.0)
    return {
        "schema": "forktail.closed-load/1",
        "generator": "memtier_benchmark",
        "version": "2.3.0",
        "path": "/usr/bin/memtier_benchmark",
        "arguments": [],
        "connections": 50,
        "rate_wanted": 100,
        "cost": {"user_s": 0.1, "system_s": 0.1},
        "start_ns": ORIGIN + S // 4,
        "end_ns": ORIGIN + S // 4 + 4 * S,
        "completed": 400,
        "errors": 0,
        "misses": 0,
        "lost": 0,
        "rate_sent": 100.0,
        "latency_us": {"p50": 200.0, "p90": 400.0, "p99": 900.0, "p999": 12_000.0, "p9999": 12_000.0, "max": 12_000.0},
        "intervals": [_interval(second + 0.25, max_us=most) for second, most in enumerate(maxima)],
        "interval_error_ns": 5 * MS,
        "percentiles_are": "to three significant digits",
        "notes": ["It tells what it tells."],
    }


def _closed(path: Path, load: Load, change: Callable[[RunDirectory], None] | None = None) -> Path:
    run = RunDirectory.whole([])
    run.manifest["load"] = {"generator": load["generator"], "closed_loop": True}
    if change:
        change(run)
    run.write(path)
    (path / "queries.bin").unlink()
    (path / "load.json").write_text(json.dumps(load))
    return path


def test_an_interval_that_touches_the_window_is_the_snapshots(tmp_path: Path) -> None:
    summary = analyse(_closed(tmp_path / "run", _seconds()))
    assert summary.valid, summary.reasons
    queries = summary.document["queries"]
    # The window is from 1 to 2 s, and the seconds begin at 0.25: those of 0.25 and of 1.25 touch it.
    assert (queries["snapshot"]["intervals"], queries["snapshot"]["covers_ms"]) == (2, 2000.0)
    assert (queries["snapshot"]["count"], queries["snapshot"]["max_us"]) == (200, 12_000.0)
    assert (queries["normal"]["count"], queries["normal"]["max_us"]) == (200, 900.0)
    assert (queries["whole_run"]["count"], queries["whole_run"]["p99_us"]) == (400, 900.0)


def test_what_is_not_told_is_null_and_said(tmp_path: Path) -> None:
    run = _closed(tmp_path / "run", _seconds())
    document = analyse(run).document
    for name in ("normal", "snapshot"):
        told = {key: value for key, value in document["queries"][name].items() if value is not None}
        assert told.keys() == {"count", "max_us", "intervals", "covers_ms"}
    for name in ("intended", "sent", "unsent", "in_flight", "lag_p50_us", "lag_p99_us", "rate_error"):
        assert document["load"][name] is None
    assert document["attribution"] is None
    assert document["load"]["text"] == "memtier_benchmark, closed loop, at most 100 queries/s over 50 connections"
    report = (run / "report.html").read_text()
    for words in ("closed loop", "It tells what it tells.", "keeps no record of single queries", "n/a"):
        assert words in report
    assert not (run / "queries.parquet").exists()
    assert (run / "events.parquet").exists()


def test_an_edge_that_may_be_off_counts_as_touching(tmp_path: Path) -> None:
    load = _seconds()
    # Ends 4 ms before the fork by a clock that is 5 ms off.
    load["intervals"][0] = {
        "start_ns": ORIGIN + S // 4,
        "end_ns": ORIGIN + S - 4 * MS,
        "count": 100,
        "max_us": 1,
        "points": None,
    }
    load["intervals"][1]["start_ns"] = ORIGIN + S - 4 * MS
    queries = analyse(_closed(tmp_path / "run", load), write=False).document["queries"]
    assert queries["snapshot"]["intervals"] == 2
    load["interval_error_ns"] = 3 * MS
    queries = analyse(_closed(tmp_path / "other", load), write=False).document["queries"]
    assert queries["snapshot"]["intervals"] == 1


def test_the_warm_up_is_in_no_class(tmp_path: Path) -> None:
    load = _seconds()
    load["intervals"].insert(0, {**_interval(-0.75), "max_us": 99_000.0})
    load["completed"] = 500
    queries = analyse(_closed(tmp_path / "run", load), write=False).document["queries"]
    assert queries["warmup"]["count"] == 100
    assert max(queries[name]["max_us"] for name in ("normal", "snapshot")) == 12_000.0


def _histogram(latencies_us: np.ndarray[Any, Any], edges: list[float]) -> list[list[float]]:
    points = {edge: int((latencies_us <= edge).sum()) for edge in edges}
    most = float(latencies_us.max())
    return [[edge, count] for edge, count in {**points, most: len(latencies_us)}.items() if edge <= most]


def test_percentiles_of_histograms_bound_the_true_ones(tmp_path: Path) -> None:
    """Of 20 batches with edges of their own: never below the truth, and above it by a step of the coarsest at most."""
    random = np.random.default_rng(7)
    load, pooled = _seconds(), []
    intervals = []
    for batch in range(20):
        latencies = np.round(random.lognormal(6, 1, 1000), 1)
        pooled.append(latencies)
        edges = sorted({*np.arange(100.0, 60_000.0, 100.0), *np.round(np.quantile(latencies, [0.5, 0.75, 0.875]), 1)})
        intervals.append({**_interval(3 + batch, 1000, float(latencies.max())), "points": _histogram(latencies, edges)})
    load |= {"intervals": intervals, "latency_us": None, "completed": 20_000}
    (tmp_path / "load.json").write_text(json.dumps(load))
    closed = read_closed_load(tmp_path / "load.json")
    assert isinstance(closed, ClosedLoad)
    told, true = closed.whole(), np.sort(np.concatenate(pooled))
    for name, percent in (("p50", 50), ("p90", 90), ("p99", 99), ("p999", 99.9), ("p9999", 99.99)):
        exact = true[int(np.ceil(len(true) * percent / 100)) - 1]
        value = told[name]
        assert value is not None
        assert exact <= value <= exact + 100.1
    assert told["max"] == true[-1]


def _set(**fields: Any) -> Callable[[Load], None]:
    return lambda load: load.update(fields)


def _no_snapshot_second(load: Load) -> None:
    load["intervals"] = [_interval(2.25, 400)]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (_set(errors=3), "3 queries got an error for a reply"),
        (_set(lost=2), "2 connections broke"),
        (_set(completed=401), "tells 401 of the whole run, and 400 of its intervals together"),
        (_no_snapshot_second, "The snapshot class is empty"),
    ],
)
def test_what_makes_a_closed_loops_figures_false(tmp_path: Path, fault: Callable[[Load], None], reason: str) -> None:
    load = _seconds()
    fault(load)
    summary = analyse(_closed(tmp_path / "run", load), write=False)
    assert len(summary.reasons) == 1
    assert reason in summary.reasons[0]


@pytest.mark.parametrize(
    ("fault", "warning"),
    [
        (_set(), "omits the queries that a stall kept it from sending"),
        (_set(rate_sent=98.0), "98 instead of 100 queries a second were sent"),
        (_set(misses=7), "7 GETs found no key"),
        (_set(end_ns=ORIGIN + 3 * S // 2), "The load ended 500 ms before the window of snapshot 1 closed"),
    ],
)
def test_what_weakens_them(tmp_path: Path, fault: Callable[[Load], None], warning: str) -> None:
    load = _seconds()
    fault(load)
    summary = analyse(_closed(tmp_path / "run", load), write=False)
    assert summary.valid, summary.reasons
    assert any(warning in told for told in summary.warnings)


def test_the_kernels_own_faults_are_still_told(tmp_path: Path) -> None:
    def without_fork(run: RunDirectory) -> None:
        run.events = [event for event in run.events if event.kind != FORK]

    summary = analyse(_closed(tmp_path / "run", _seconds(), without_fork), write=False)
    assert any("No fork of the server" in reason for reason in summary.reasons)


@pytest.mark.parametrize(
    "damage",
    [
        lambda load: load.pop("intervals"),
        lambda load: load["intervals"][0].pop("count"),
        lambda load: load["intervals"][0].update(max_us=None),
        lambda load: load["latency_us"].pop("p99"),
        lambda load: load.update(connections="many"),
    ],
)
def test_a_damaged_load_is_refused(tmp_path: Path, damage: Callable[[Load], object]) -> None:
    load = _seconds()
    damage(load)
    with pytest.raises(BadInput, match=r"load\.json is not as a run writes it"):
        analyse(_closed(tmp_path / "run", load), write=False)


def test_an_open_loops_log_is_not_to_be_missing(tmp_path: Path) -> None:
    path = RunDirectory.whole().write(tmp_path / "run")
    (path / "queries.bin").unlink()
    with pytest.raises(BadInput, match=r"lacks queries\.bin"):
        analyse(path, write=False)


def _keydb(run: RunDirectory) -> None:
    run.manifest["server"] |= {"engine": "keydb", "threads": 4, "serving_tids": [77, 78, 79, 80]}
    run.events.append(Event(INTERRUPTION, run.fork_start + 20 * MS, 2 * MS, tid=77))


def test_keydbs_interruption_stops_one_thread_and_not_the_server(tmp_path: Path) -> None:
    run = RunDirectory.whole()
    _keydb(run)
    path = run.write(tmp_path / "run")
    document = analyse(path).document
    assert document["out_of_service_us"] == 10_000
    assert document["out_of_service"] == {"fork_us": 10_000, "interruptions_us": 0, "one_thread_us": 2000}
    assert document["interruptions"]["total_us"] == 2000
    assert document["attribution"]["threads"] == 4
    assert "every share but the fork's is an upper bound" in document["answer"]
    report = (path / "report.html").read_text()
    assert "The server has 4 threads that serve" in report
    assert "one of its 4 threads was interrupted" in report


def test_only_keydbs_serving_threads_can_delay_a_query(tmp_path: Path) -> None:
    """Its first thread, whose id is the server's, serves nobody, nor does that which keeps the time."""
    shares = {}
    for tids in ([77], [4242], None):
        run = RunDirectory.whole()
        run.manifest["server"] |= {"engine": "keydb", "threads": 1, "serving_tids": tids}
        run.events.append(Event(RUN_QUEUE, run.fork_start + run.fork_ns, 30 * MS, tid=77))
        for query in run.queries:
            if run.fork_start + run.fork_ns <= query.intended < run.fork_start + run.fork_ns + 30 * MS:
                query.latency += run.fork_start + run.fork_ns + 30 * MS - query.intended
        document = analyse(run.write(tmp_path / f"run-{tids}"), write=False).document
        shares[str(tids)] = document["attribution"]["excess_share"]["run_queue"]
    assert shares["[77]"] > 0.5
    assert shares["[4242]"] == 0
    # Unknown which of them serve, as in a container: all may.
    assert shares["None"] == shares["[77]"]


def test_a_single_thread_of_redis_is_the_server(tmp_path: Path) -> None:
    run = RunDirectory.whole(extra_events=[Event(INTERRUPTION, RunDirectory.fork_start + 20 * MS, 2 * MS)])
    document = analyse(run.write(tmp_path / "run"), write=False).document
    assert document["out_of_service_us"] == 12_000
    assert document["out_of_service"] == {"fork_us": 10_000, "interruptions_us": 2000, "one_thread_us": 0}
    assert "upper bound" not in document["answer"]


@pytest.mark.parametrize(
    ("told_us", "valid", "warned"), [(14_000, True, True), (10_020, True, False), (5_000, False, False)]
)
def test_keydbs_clock_may_be_longer_than_its_fork_but_not_shorter(
    tmp_path: Path, told_us: int, valid: bool, warned: bool
) -> None:
    """It starts before KeyDB waits for the lock that stops its other threads."""
    run = RunDirectory.whole()
    run.manifest["server"] |= {"engine": "keydb", "threads": 4}
    run.manifest["info"]["latest_fork_usec"] = told_us
    summary = analyse(run.write(tmp_path / "run"), write=False)
    assert summary.valid == valid
    assert any("waited for its other threads" in warning for warning in summary.warnings) == warned


def test_a_fork_by_another_thread_is_held_to_that_threads_waits(tmp_path: Path) -> None:
    """The forking thread lost its CPU right after fork, which is in its clock; the main thread's wait is not."""
    for thread, valid in ((77, True), (4242, False)):
        run = RunDirectory.whole()
        run.manifest["server"] |= {"engine": "keydb", "threads": 1}
        for event in run.events:
            if event.kind == FORK:
                event.tid = 77
        run.events.append(Event(RUN_QUEUE, run.fork_start + run.fork_ns, 5 * MS, tid=thread))
        run.manifest["info"]["latest_fork_usec"] = 15_020
        assert analyse(run.write(tmp_path / f"run{thread}"), write=False).valid == valid

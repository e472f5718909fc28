# SPDX-License-Identifier: Apache-2.0
"""Async-fork in a run directory: proved, refused, failed, and reported under its own names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.analysis.synthetic import (
    CHILD,
    CHILD_EXIT,
    FLIGHT,
    FORK,
    INTERRUPTION,
    MS,
    PAGE_TABLE_COPY,
    WINDOW_END,
    Event,
    RunDirectory,
    async_fork,
    flight_aux,
)

from forktail.analysis import Summary, analyse
from forktail.analysis.table import print_summary

Change = Callable[[RunDirectory], Any]


def _analysed(tmp_path: Path, change: Change = lambda run: None, **how: int) -> Summary:
    run = async_fork(**how)
    change(run)
    return analyse(run.write(tmp_path / "run"), write=False)


def _flight(run: RunDirectory) -> Event:
    return next(event for event in run.events if event.kind == FLIGHT)


def test_a_run_is_proved_and_tells_who_copied(tmp_path: Path) -> None:
    summary = _analysed(tmp_path, threads=4)
    assert summary.valid, summary.reasons
    assert summary.warnings == []
    told = summary.document
    assert told["mechanism"]["text"] == "async-fork, 4 threads"
    assert told["mechanism"]["copy_threads"] == 4
    assert told["flight"] == told["snapshots"][0]["flight"]
    assert told["flight"] == {
        "left_to_child": True,
        "duration_us": 60_000,
        "copy_us": 60_000,
        "copied_tables": 300,
        "tables": 325,
        "aborted": False,
    }
    assert told["interruptions"]["count"] == 10
    assert told["interruptions"]["total_us"] == 295
    assert told["interruptions"]["reasons"] == [
        {"reason": "fault", "count": 9, "total_us": 261},
        {"reason": "unmap", "count": 1, "total_us": 34},
    ]


def test_what_queries_waited_for_has_the_name_of_the_mechanism(tmp_path: Path) -> None:
    def one_long(run: RunDirectory) -> None:
        sync = Event(INTERRUPTION, run.fork_start + 30 * MS, 20 * MS, aux=2)
        run.events.append(sync)
        for query in run.queries:
            if sync.start <= query.intended < sync.start + sync.duration:
                query.latency += sync.start + sync.duration - query.intended

    summary = _analysed(tmp_path, one_long)
    assert "proactive synchronizations" in summary.document["answer"]
    odf = RunDirectory.whole()
    one_long(odf)
    odf.manifest["mechanism"] = {"name": "odf", "knob": "/proc/1/use_odf", "wanted": "1", "read_back": "1"}
    assert "proactive" not in analyse(odf.write(tmp_path / "odf"), write=False).document["answer"]


def _by_fork_itself(run: RunDirectory) -> None:
    flight = _flight(run)
    flight.context, flight.duration, flight.tgid = 0, 300_000, 4242


def _copied_as_default(run: RunDirectory) -> None:
    """The cost of a fork that copies, and nothing else that tells."""
    _no_probe_for_flights(run)
    for event in run.events:
        if event.kind in (FORK, PAGE_TABLE_COPY):
            event.duration = 10 * MS
    run.events = [event for event in run.events if event.kind != INTERRUPTION]
    run.events[0].duration = 9 * MS
    run.manifest["info"]["latest_fork_usec"] = 10_020


def _no_probe_for_flights(run: RunDirectory) -> None:
    run.events.remove(_flight(run))
    run.probe["probes"]["flight"]["probe"] = None


def _of_another_child(run: RunDirectory) -> None:
    _flight(run).context = CHILD + 1


def _default_was_meant(run: RunDirectory) -> None:
    run.manifest["mechanism"].update(name="default", wanted="0", read_back="0", copy_threads=None)


def _knob_fell_back(run: RunDirectory) -> None:
    run.manifest["mechanism"]["read_back"] = "0"


REFUSED: list[tuple[str, Change]] = [
    ("memory.async_fork held '0' and not '1' at the end of the run", _knob_fell_back),
    ("Fork 1 copied all of its 325 page tables itself: async-fork was not used.", _by_fork_itself),
    ("Fork 1 left 20 of 325 page tables to its child", lambda run: setattr(_flight(run), "aux", flight_aux(20, 325))),
    ("9 ms for 325 page tables, 27.7 µs each: it copied them as the default fork does", _copied_as_default),
    ("nothing proves that async-fork was used", lambda run: run.events.remove(_flight(run))),
    ("nothing proves that async-fork was used", _of_another_child),
    ("Fork 1 left 300 page tables to its child, as async-fork does: it was not default.", _default_was_meant),
]


@pytest.mark.parametrize(("words", "change"), REFUSED)
def test_a_fork_that_was_not_the_one_meant_is_refused(tmp_path: Path, words: str, change: Change) -> None:
    summary = _analysed(tmp_path, change)
    assert len(summary.reasons) == 1, summary.reasons
    assert words in summary.reasons[0]


def test_without_a_probe_for_flights_the_cost_is_the_proof_and_the_doubt_is_told(tmp_path: Path) -> None:
    summary = _analysed(tmp_path, _no_probe_for_flights)
    assert summary.valid, summary.reasons
    assert [warning for warning in summary.warnings if "known by fork's time alone" in warning]


def test_a_server_too_small_for_async_fork_is_told_and_valid(tmp_path: Path) -> None:
    """The floor of a sweep: the kernel leaves so few tables to nobody."""

    def small(run: RunDirectory) -> None:
        _by_fork_itself(run)
        run.manifest["server"]["before"]["page_table_bytes"] = 20 * 4096
        run.events = [event for event in run.events if event.kind != INTERRUPTION]

    summary = _analysed(tmp_path, small)
    assert summary.valid, summary.reasons
    (warning,) = summary.warnings
    assert "Fork 1 was the default fork: the server has only 20 page tables" in warning
    assert summary.document["flight"]["copy_us"] is None


def _child_killed(run: RunDirectory) -> None:
    next(event for event in run.events if event.kind == CHILD_EXIT).aux = 9
    run.manifest["info"]["rdb_last_bgsave_status"] = "err"


def _aborted(run: RunDirectory) -> None:
    _child_killed(run)
    flight = _flight(run)
    flight.duration, flight.aux = 21 * MS, flight_aux(120, 325, aborted=True)


def test_an_aborted_flight_is_a_failed_snapshot_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = async_fork()
    _aborted(run)
    summary = analyse(run.write(tmp_path / "run"))
    (reason,) = summary.reasons
    assert reason.startswith(
        "Snapshot 1 failed: async-fork gave its child up 21 ms after it began, with 120 page tables copied, and the "
        "child was killed by SIGKILL."
    )
    assert summary.document["flight"]["aborted"]
    assert summary.document["flight"]["copy_us"] is None
    html = (tmp_path / "run" / "report.html").read_text()
    assert "given up after 21 ms, 120 page tables copied" in html
    assert "async-fork gave its child up" in html
    print_summary(summary)
    assert "given up after 21 ms" in capsys.readouterr().out


def test_a_child_that_is_killed_later_fails_its_snapshot_alone(tmp_path: Path) -> None:
    (reason,) = _analysed(tmp_path, _child_killed).reasons
    assert reason == "Snapshot 1 failed: its child was killed by SIGKILL."


def test_a_second_fork_during_a_flight_has_its_own(tmp_path: Path) -> None:
    """The flights overlap, and the second one is over first."""

    def again(run: RunDirectory) -> None:
        start = run.fork_start + 40 * MS
        run.events += [
            Event(FORK, start, 700_000, 0x1200011, CHILD + 1),
            Event(FLIGHT, start + 1000, 9 * MS, CHILD + 1, flight_aux(310, 330), CHILD + 1, CHILD + 1, 1),
            Event(WINDOW_END, run.window_end, 0, CHILD + 1),
        ]

    told = _analysed(tmp_path, again).document["snapshots"]
    assert [one["flight"]["copied_tables"] for one in told] == [300, 310]
    assert [one["flight"]["duration_us"] for one in told] == [60_000, 9_000]


def test_the_report_says_what_has_no_effect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    note = "snapshot.copy_threads = 4 has no effect: this kernel has no async-fork."
    run = RunDirectory.whole()
    run.manifest["mechanism"] = {"name": "default", "knob": None, "wanted": None, "read_back": None, "note": note}
    summary = analyse(run.write(tmp_path / "run"))
    assert summary.valid
    assert note in (tmp_path / "run" / "report.html").read_text()
    print_summary(summary)
    assert note in capsys.readouterr().out


def test_the_report_names_fork_flight_and_synchronizations(tmp_path: Path) -> None:
    analyse(async_fork(threads=8).write(tmp_path / "run"))
    html = (tmp_path / "run" / "report.html").read_text()
    for words in (
        "async-fork, 8 threads on Linux 6.1.170-forktail-async-fork",
        "300 of 325 page tables, the last 60 ms after fork took them up",
        "fault 9 (261 µs), unmap 1 (34 µs)",
        "proactive synchronization",
    ):
        assert words in html

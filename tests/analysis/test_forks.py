# SPDX-License-Identifier: Apache-2.0
"""A fork that the run did not ask for, or that was not measured, is never silent: it makes the run invalid."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.analysis.synthetic import (
    CHILD,
    CHILD_EXIT,
    FORK,
    FORK_UNMEASURED,
    MS,
    ORIGIN,
    WINDOW_END,
    Event,
    RunDirectory,
    S,
)

from forktail.analysis import Summary, analyse
from forktail.analysis.eventlog import read_event_log
from forktail.errors import BadInput

OTHER = CHILD + 1
Change = Callable[[RunDirectory], None]


def _analysed(tmp_path: Path, change: Change, before: dict[str, int] | None = None, **after: int) -> Summary:
    directory = RunDirectory.whole()
    change(directory)
    path = directory.write(tmp_path / "run")
    (path / "server").mkdir()
    for name, counts in (("info-before.json", before), ("info-after.json", after)):
        if counts is not None:
            (path / "server" / name).write_text(json.dumps(counts))
    return analyse(path, write=False)


def _forked(start: int, length: int = S // 10, kind: int = FORK) -> Change:
    def fork(run: RunDirectory) -> None:
        long = 10 * MS if kind == FORK else 0
        run.events += [Event(kind, start, long, aux=OTHER), Event(WINDOW_END, start + length, 0, OTHER)]
        run.manifest["info"].pop("rdb_last_bgsave_time_sec")

    return fork


@pytest.mark.parametrize("kind", [FORK, FORK_UNMEASURED])
@pytest.mark.parametrize(
    ("start", "when"),
    [
        (ORIGIN - S // 5, "200 ms before the load began"),
        (ORIGIN + S // 50, "20 ms after the load began"),
        (ORIGIN + S // 2, "500 ms after the load began"),
        (RunDirectory.fork_start + S // 4, "1.25 s after the load began"),
        (RunDirectory.window_end + S // 2, "2.5 s after the load began"),
    ],
    ids=["before the load", "in the warm-up", "before the snapshot", "two at once", "in the cool-down"],
)
def test_a_fork_without_a_request_makes_the_run_invalid(tmp_path: Path, kind: int, start: int, when: str) -> None:
    summary = _analysed(tmp_path, _forked(start, kind=kind))
    (reason,) = summary.reasons
    assert f"forked once without a request of this run: {when} (child {OTHER})" in reason


def test_many_forks_without_a_request_are_one_reason(tmp_path: Path) -> None:
    def often(run: RunDirectory) -> None:
        for number in range(7):
            start = RunDirectory.window_end + (number + 1) * S // 10
            child = OTHER + number
            run.events += [Event(FORK, start, MS, aux=child), Event(WINDOW_END, start + 50 * MS, 0, child)]
        run.manifest["info"] = {"rdb_last_bgsave_status": "ok"}

    (reason,) = _analysed(tmp_path, often).reasons
    assert "forked 7 times without a request of this run: 2.1 s after" in reason
    assert "and 2 times more" in reason


def test_the_queries_of_an_unmeasured_fork_are_not_normal(tmp_path: Path) -> None:
    """Its window begins as long before the birth as a fork of this server takes: by INFO 10.02 ms."""
    birth = RunDirectory.window_end + S // 2
    summary = _analysed(tmp_path, _forked(birth, kind=FORK_UNMEASURED))
    (tmp_path / "plain").mkdir()
    plain = _analysed(tmp_path / "plain", lambda _: None)
    moved = plain.document["queries"]["normal"]["count"] - summary.document["queries"]["normal"]["count"]
    assert moved == (100 * MS + 10_020_000) // (MS // 2) + 1
    assert summary.document["snapshots"][1]["window"]["start_ns"] == birth - 10_020_000


def test_a_requested_fork_that_was_not_measured_makes_the_run_invalid(tmp_path: Path) -> None:
    def unmeasured(run: RunDirectory) -> None:
        for event in run.events:
            if event.kind == FORK:
                event.kind, event.start, event.duration = FORK_UNMEASURED, event.start + event.duration, 0

    (reason,) = _analysed(tmp_path, unmeasured).reasons
    assert "Of the fork of snapshot 1 only the birth of its child was seen, 1.01 s after the load began" in reason


def test_the_servers_own_count_of_forks_is_compared(tmp_path: Path) -> None:
    (reason,) = _analysed(tmp_path, lambda _: None, {"total_forks": 3}, total_forks=5).reasons
    assert "By INFO's total_forks the server forked 2 times" in reason
    assert "the probe saw 1 forks" in reason


@pytest.mark.parametrize("before", [None, {}, {"total_forks": 3}])
def test_counts_that_agree_or_are_lacking_are_no_fault(tmp_path: Path, before: dict[str, int] | None) -> None:
    assert _analysed(tmp_path, lambda _: None, before, total_forks=4).valid


@pytest.mark.parametrize("kind", [WINDOW_END, CHILD_EXIT])
def test_the_end_of_a_child_without_a_fork_makes_the_run_invalid(tmp_path: Path, kind: int) -> None:
    def end(run: RunDirectory) -> None:
        run.events.append(Event(kind, RunDirectory.window_end + S // 2, 0, OTHER))

    (reason,) = _analysed(tmp_path, end).reasons
    assert f"Child {OTHER} of the server ended 2.5 s after the load began, but its fork was not seen" in reason


@pytest.mark.parametrize("name", ["rdb_bgsave_in_progress", "aof_rewrite_in_progress", "module_fork_in_progress"])
def test_a_child_from_before_the_measurement_makes_the_run_invalid(tmp_path: Path, name: str) -> None:
    (reason,) = _analysed(tmp_path, lambda _: None, {name: 1}).reasons
    assert f"still at work when it began (INFO's {name})" in reason


def test_queries_of_an_armed_probe_are_neither_normal_nor_the_snapshots(tmp_path: Path) -> None:
    start, end = RunDirectory.fork_start, RunDirectory.window_end

    def armed(run: RunDirectory) -> None:
        run.manifest["marks"]["armed"] = [
            {"from_ns": start - 50 * MS, "armed_ns": start - 40 * MS, "until_ns": end + 30 * MS}
        ]

    document = _analysed(tmp_path, armed).document
    assert document["valid"], document["reasons"]
    # At 2,000/s, and the window's own edges are the snapshot's.
    assert document["queries"]["armed"]["count"] == 100 + 60
    assert document["queries"]["snapshot"]["count"] == 2001
    assert sum(document["queries"][name]["count"] for name in ("normal", "warmup", "snapshot", "armed")) == 6000


def test_a_log_of_version_1_is_read_and_one_of_version_3_is_not(tmp_path: Path) -> None:
    path = RunDirectory.whole().write(tmp_path / "run") / "events.bin"
    written = path.read_bytes()
    path.write_bytes(written[:8] + struct.pack("<I", 1) + written[12:])
    assert len(read_event_log(path).events) == 5
    path.write_bytes(written[:8] + struct.pack("<I", 3) + written[12:])
    with pytest.raises(BadInput, match=r"event log version 3, but this forktail reads versions 1 to 2"):
        read_event_log(path)

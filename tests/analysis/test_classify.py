# SPDX-License-Identifier: Apache-2.0
"""The classes at the edges of windows, and the windows that the kernel events give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.analysis.synthetic import (
    CHILD,
    CHILD_EXIT,
    FORK,
    MS,
    ORIGIN,
    PAGE_TABLE_COPY,
    WINDOW_END,
    Event,
    RunDirectory,
    S,
    event_log,
)

from forktail.analysis.classify import NORMAL, SNAPSHOT, WARMUP, classify
from forktail.analysis.eventlog import read_event_log
from forktail.analysis.window import Snapshot, snapshots


def test_the_edges_of_a_window_belong_to_it() -> None:
    intended = np.array([99, 100, 101, 199, 200, 201], dtype=np.int64)
    expected = [NORMAL, SNAPSHOT, SNAPSHOT, SNAPSHOT, SNAPSHOT, NORMAL]
    assert classify(intended, [(100, 200)], 0).tolist() == expected


def test_the_warm_up_ends_with_its_mark_and_wins_over_a_window() -> None:
    intended = np.array([9, 10, 11, 49, 50, 51], dtype=np.int64)
    expected = [WARMUP, WARMUP, WARMUP, WARMUP, SNAPSHOT, SNAPSHOT]
    assert classify(intended, [(10, 60)], 50).tolist() == expected
    assert classify(intended, [], 10).tolist() == [WARMUP, NORMAL, NORMAL, NORMAL, NORMAL, NORMAL]


@given(
    st.lists(st.integers(0, 100), max_size=60),
    st.lists(st.tuples(st.integers(0, 100), st.integers(0, 40)), max_size=4),
    st.integers(0, 60),
)
def test_classes_are_those_of_the_definition(times: list[int], spans: list[tuple[int, int]], warmup_end: int) -> None:
    windows = [(start, start + length) for start, length in spans]
    times.sort()
    expected = []
    for time in times:
        if time < warmup_end:
            expected.append(WARMUP)
        elif any(start <= time <= end for start, end in windows):
            expected.append(SNAPSHOT)
        else:
            expected.append(NORMAL)
    assert classify(np.array(times, dtype=np.int64), windows, warmup_end).tolist() == expected


def _snapshots(tmp_path: Path, *events: Event) -> list[Snapshot]:
    path = tmp_path / "events.bin"
    path.write_bytes(event_log(events))
    return snapshots(read_event_log(path), ORIGIN + 9 * S)


def test_a_window_runs_from_the_fork_entry_to_the_sigchld_of_its_own_child(tmp_path: Path) -> None:
    (snapshot,) = _snapshots(
        tmp_path,
        Event(FORK, ORIGIN, 5 * MS, aux=CHILD),
        Event(PAGE_TABLE_COPY, ORIGIN + MS, 3 * MS),
        Event(PAGE_TABLE_COPY, ORIGIN + 6 * MS, 3 * MS),
        Event(WINDOW_END, ORIGIN - S, context=CHILD),
        Event(WINDOW_END, ORIGIN + S, context=CHILD + 1),
        Event(CHILD_EXIT, ORIGIN + 2 * S, context=CHILD, tgid=CHILD),
        Event(WINDOW_END, ORIGIN + 2 * S + MS, context=CHILD),
    )
    assert (snapshot.start_ns, snapshot.fork_end_ns) == (ORIGIN, ORIGIN + 5 * MS)
    assert (snapshot.end_ns, snapshot.ended_by) == (ORIGIN + 2 * S + MS, "window_end")
    assert snapshot.page_table_copy_ns == 3 * MS


def test_child_exit_closes_the_window_where_no_sigchld_was_seen(tmp_path: Path) -> None:
    (snapshot,) = _snapshots(
        tmp_path,
        Event(FORK, ORIGIN, MS, aux=CHILD),
        Event(CHILD_EXIT, ORIGIN + S, context=CHILD, tgid=CHILD),
    )
    assert (snapshot.end_ns, snapshot.ended_by) == (ORIGIN + S, "child_exit")
    assert snapshot.page_table_copy_ns is None


def test_a_window_that_nothing_closed_is_cut_off_at_the_end_of_the_records(tmp_path: Path) -> None:
    (snapshot,) = _snapshots(tmp_path, Event(FORK, ORIGIN, MS, aux=CHILD))
    assert snapshot.truncated
    assert snapshot.end_ns == ORIGIN + 9 * S


def test_forks_of_others_and_failed_forks_open_no_window(tmp_path: Path) -> None:
    failed = 2**64 - 12
    assert not _snapshots(tmp_path, Event(FORK, ORIGIN, MS, aux=CHILD, tgid=77), Event(FORK, ORIGIN, MS, aux=failed))


def test_the_summary_counts_queries_by_arrival(tmp_path: Path) -> None:
    from forktail.analysis import analyse

    run = RunDirectory.whole().write(tmp_path / "run")
    queries = analyse(run, write=False).document["queries"]
    # 6000 queries, one each 0.5 ms from ORIGIN: 200 in the warm-up, and 1 s / 0.5 ms + 1 with both edges.
    assert queries["warmup"]["count"] == 200
    assert queries["snapshot"]["count"] == 2001
    assert queries["normal"]["count"] == 6000 - 200 - 2001

# SPDX-License-Identifier: Apache-2.0
"""A window that is wrong by less than its length is found, whatever its length; one that is right never is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.analysis.synthetic import CHILD_EXIT, MS, ORIGIN, RENAME, WINDOW_END, Query, RunDirectory, S

from forktail.analysis import Summary, analyse
from forktail.analysis.bracket import COARSE_CLOCK_NS, CRON_SLACK_NS, whole_seconds

FORK_END = RunDirectory.fork_start + RunDirectory.fork_ns
REPLIED = FORK_END + MS
TICK = 100 * MS
REAPED_WITHIN = TICK + CRON_SLACK_NS
WALL_AHEAD = 1_700_000_000 * S + 300 * MS


def _fast(latency: int = 106_000) -> list[Query]:
    """2,000 queries a second that nothing but the fork delays."""
    queries = [Query(ORIGIN + index * MS // 2, latency) for index in range(6000)]
    for query in queries:
        if RunDirectory.fork_start <= query.intended < FORK_END:
            query.latency = FORK_END - query.intended + 1000
    return queries


def _run(
    length_ns: int = S,
    reaped_ns: int = 60 * MS,
    poll_ns: int = 10 * MS,
    wall_ahead_ns: int | None = WALL_AHEAD,
    hz: int | None = None,
) -> RunDirectory:
    """A run whose child exited `length_ns` after its fork began, and was reaped `reaped_ns` later.

    INFO was polled each `poll_ns`, so that the last poll before the reaping said "in progress".
    """
    run = RunDirectory.whole(_fast())
    end = run.fork_start + length_ns
    for event in run.events:
        if event.kind in (WINDOW_END, CHILD_EXIT, RENAME):
            event.start = end
    polls = reaped_ns // poll_ns * poll_ns
    mark = run.manifest["marks"]["snapshots"][0]
    mark |= {"last_in_progress_ns": end + polls, "finished_seen_ns": end + polls + poll_ns}
    mark |= {"wall_ahead_ns": wall_ahead_ns, "wall_ahead_after_ns": wall_ahead_ns}
    first, last = FORK_END + MS // 2, end + reaped_ns
    ahead = WALL_AHEAD if wall_ahead_ns is None else wall_ahead_ns
    run.manifest["info"]["rdb_last_bgsave_time_sec"] = (last + ahead) // S - (first + ahead) // S
    if hz is not None:
        run.manifest["info"]["hz"] = hz
    return run


def _move_end(run: RunDirectory, by_ns: int) -> RunDirectory:
    """Plant an end of the window that is wrong; what user space saw stays."""
    for event in run.events:
        if event.kind in (WINDOW_END, CHILD_EXIT, RENAME):
            event.start += by_ns
    return run


def _analysed(run: RunDirectory, path: Path) -> Summary:
    return analyse(run.write(path), write=False)


LENGTHS = [30 * MS, 150 * MS, 700 * MS, S, 1900 * MS]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("reaped", [0, 3 * MS, 60 * MS, 100 * MS])
def test_a_window_that_is_right_is_no_fault(tmp_path: Path, length: int, reaped: int) -> None:
    summary = _analysed(_run(length, reaped), tmp_path / "run")
    assert summary.valid, summary.reasons


WRONG = [-1200 * MS, -500 * MS, -200 * MS, 200 * MS, 500 * MS, 1200 * MS]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("reaped", [0, 60 * MS, 100 * MS])
def test_an_end_that_is_wrong_is_found_in_a_window_of_any_length(
    tmp_path: Path, length: int, wrong: int, reaped: int
) -> None:
    if RunDirectory.fork_ns + MS > length + wrong:
        length += -wrong  # An end before its fork is no window, so the true one is that much longer.
    summary = _analysed(_move_end(_run(length, reaped), wrong), tmp_path / "run")
    assert not summary.valid
    words = "finished" if wrong > 0 else "in progress"
    assert any(f"INFO showed snapshot 1 {words}" in reason for reason in summary.reasons), summary.reasons


@pytest.mark.parametrize("wrong", [-1200 * MS, -500 * MS, -200 * MS, 200 * MS, 500 * MS])
def test_a_start_that_is_wrong_is_found(tmp_path: Path, wrong: int) -> None:
    run = _run(S)
    for event in run.events:
        if event.start < RunDirectory.fork_start + S // 2:
            event.start += wrong
    reasons = _analysed(run, tmp_path / "run").reasons
    # A fork that was over before the request answers no request.
    words = "forked once without a request" if wrong < 0 else "after the server had replied to BGSAVE"
    assert any(words in reason for reason in reasons), reasons


def test_a_fork_that_began_before_its_request_is_found(tmp_path: Path) -> None:
    run = _run(S)
    run.manifest["marks"]["snapshots"][0]["requested_ns"] = RunDirectory.fork_start + MS
    reasons = _analysed(run, tmp_path / "run").reasons
    assert any(reason.startswith("The fork of snapshot 1 began 1 ms before") for reason in reasons), reasons


@pytest.mark.parametrize(
    ("by", "valid"),
    [
        (0, True),
        (1, False),
        (-1, True),
    ],
)
def test_the_end_may_be_as_late_as_info_says_finished_and_no_later(tmp_path: Path, by: int, valid: bool) -> None:
    run = _run(S, reaped_ns=0, poll_ns=10 * MS)
    run.manifest["marks"]["snapshots"][0]["finished_seen_ns"] = run.fork_start + S - by
    assert _analysed(run, tmp_path / "run").valid == valid


GAP = S // 10_000
"""Between two queries, by the rate in the query log's header."""


@pytest.mark.parametrize(("hz", "tick"), [(None, TICK), (10, TICK), (100, TICK // 10), (1, S)])
@pytest.mark.parametrize(("by", "valid"), [(0, True), (1, False)])
def test_the_end_may_be_a_reaping_time_before_info_says_in_progress(
    tmp_path: Path, hz: int | None, tick: int, by: int, valid: bool
) -> None:
    """Both sides of the bound, to the nanosecond; the slowest query of that time is a usual one of 106 us."""
    run = _run(1500 * MS, hz=hz)
    wait = 106_000 + GAP
    end, mark = run.fork_start + 1500 * MS, run.manifest["marks"]["snapshots"][0]
    mark["last_in_progress_ns"] = end + tick + CRON_SLACK_NS + wait + by
    mark["finished_seen_ns"] = mark["last_in_progress_ns"] + MS
    del run.manifest["info"]["rdb_last_bgsave_time_sec"]
    summary = _analysed(run, tmp_path / "run")
    assert summary.valid == valid, summary.reasons


def test_a_slow_query_of_that_time_widens_the_bound_and_a_slow_one_of_another_does_not(tmp_path: Path) -> None:
    """A server that is held cannot reap: 0.4 s in which it answered no query are 0.4 s more."""
    for name, at, valid in (("then", 1550 * MS, True), ("before", 600 * MS, False), ("after", 1950 * MS, False)):
        run = _run(1500 * MS)
        mark = run.manifest["marks"]["snapshots"][0]
        mark["last_in_progress_ns"] = run.fork_start + 1900 * MS
        mark["finished_seen_ns"] = run.fork_start + 1910 * MS
        del run.manifest["info"]["rdb_last_bgsave_time_sec"]
        run.queries[(S + at) // (MS // 2)].latency = 300 * MS
        assert _analysed(run, tmp_path / name).valid == valid


def test_samples_of_info_bound_the_end_where_no_poll_was_recorded(tmp_path: Path) -> None:
    """Runs of older versions have no `last_in_progress_ns`, but a sample of INFO each second."""
    for name, sampled, valid in (("late", 700 * MS, False), ("early", 550 * MS, True), ("over", 1200 * MS, True)):
        run = _move_end(_run(S), -500 * MS)
        del run.manifest["marks"]["snapshots"][0]["last_in_progress_ns"]
        del run.manifest["info"]["rdb_last_bgsave_time_sec"]
        path = run.write(tmp_path / name)
        sample = {"t_ns": run.fork_start + sampled, "rdb_bgsave_in_progress": 1}
        (path / "info.jsonl").write_text(json.dumps(sample) + "\n")
        # What was sampled after the snapshot was over is of another one.
        assert analyse(path, write=False).valid == valid


@pytest.mark.parametrize("told", range(4))
def test_the_servers_own_seconds_are_exact_where_the_wall_clock_is_known(tmp_path: Path, told: int) -> None:
    """The wall clock is 300 ms into a second at ORIGIN: 1.31 s at the fork's end, 2.3 s at the exit, 2.36 s reaped."""
    run = _run(S)
    run.manifest["info"]["rdb_last_bgsave_time_sec"] = told
    reasons = _analysed(run, tmp_path / "run").reasons
    assert (not reasons) == (told == 1)
    if told != 1:
        (reason,) = reasons
        assert f"the server's clock went on by 1 s, but its rdb_last_bgsave_time_sec says {told} s" in reason


@pytest.mark.parametrize(("told", "valid"), [(0, True), (1, True), (2, True), (3, False)])
@pytest.mark.parametrize("stepped", [False, True])
def test_without_the_wall_clock_a_second_may_begin_anywhere(
    tmp_path: Path, told: int, valid: bool, stepped: bool
) -> None:
    run = _run(S, wall_ahead_ns=WALL_AHEAD if stepped else None)
    if stepped:
        run.manifest["marks"]["snapshots"][0]["wall_ahead_after_ns"] += 5 * MS + 1
    run.manifest["info"]["rdb_last_bgsave_time_sec"] = told
    assert _analysed(run, tmp_path / "run").valid == valid


def test_a_clock_that_was_slewed_was_not_set(tmp_path: Path) -> None:
    run = _run(S)
    run.manifest["marks"]["snapshots"][0]["wall_ahead_after_ns"] -= 5 * MS
    run.manifest["info"]["rdb_last_bgsave_time_sec"] = 2
    assert not _analysed(run, tmp_path / "run").valid


def test_no_pair_of_readings_lies_outside_of_the_seconds_and_both_ends_are_reached() -> None:
    """Against readings at random, with and without the wall clock."""
    random = np.random.default_rng(7)
    reached: set[str] = set()
    for _ in range(3000):
        first = int(random.integers(0, 3 * S))
        intervals = (
            (first, first + int(random.integers(0, 200 * MS))),
            (first + (length := int(random.integers(0, 3 * S))), first + length + int(random.integers(0, 300 * MS))),
        )
        ahead = int(random.integers(0, S))
        at = [int(random.integers(low, high + 1)) for low, high in intervals]
        coarse = [int(random.integers(0, COARSE_CLOCK_NS + 1)) for _ in range(2)]
        told = (at[1] + ahead - coarse[1]) // S - (at[0] + ahead - coarse[0]) // S
        for name, known in (("wall", ahead), ("none", None)):
            low, high = whole_seconds(*intervals, known)
            if told >= 0:
                assert low <= told <= high
            reached |= {f"{name} {side}" for side, bound in (("low", low), ("high", high)) if told == bound}
            assert high - low <= 2
    assert len(reached) == 4


def test_of_whole_differences_no_second_is_given_away() -> None:
    assert whole_seconds((0, 0), (2 * S + COARSE_CLOCK_NS,) * 2, None) == (2, 3)
    assert whole_seconds((0, 0), (2 * S - COARSE_CLOCK_NS,) * 2, None) == (1, 2)
    assert whole_seconds((COARSE_CLOCK_NS, S - 1), (2 * S + COARSE_CLOCK_NS, 3 * S - 1), 0) == (2, 2)
    assert whole_seconds((COARSE_CLOCK_NS - 1, S - 1), (2 * S + COARSE_CLOCK_NS, 3 * S - 1), 0) == (2, 3)
    assert whole_seconds((COARSE_CLOCK_NS, S - 1), (2 * S + COARSE_CLOCK_NS - 1, 3 * S - 1), 0) == (1, 2)

# SPDX-License-Identifier: Apache-2.0
"""Each bound of the validity rules from both sides: at the bound nothing is said, one step beyond it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.analysis.synthetic import (
    FORK,
    INTERRUPTION,
    MS,
    ORIGIN,
    PAGE_TABLE_COPY,
    Event,
    Query,
    RunDirectory,
    async_fork,
    flight_aux,
)
from tests.analysis.test_closed_load import _closed, _seconds

from forktail.analysis.classify import AMBIGUOUS, SNAPSHOT
from forktail.analysis.clock import ClientClock, _quickest
from forktail.analysis.result import Result, derive, sent_lags
from forktail.analysis.run import read_run
from forktail.analysis.validity import Verdict, judge

Plant = Callable[[RunDirectory], object]


def _result(run: RunDirectory, path: Path) -> Result:
    return derive(read_run(run.write(path)))


def _judged(path: Path, *plants: Plant) -> Verdict:
    run = RunDirectory.whole()
    for plant in plants:
        plant(run)
    return judge(_result(run, path))


def _info(**values: object) -> Plant:
    return lambda run: run.manifest["info"].update(values)


def _server(**values: object) -> Plant:
    return lambda run: run.manifest["server"].update(values)


def _before(**values: object) -> Plant:
    return lambda run: run.manifest["server"]["before"].update(values)


def _emulated(run: RunDirectory) -> None:
    run.environment["lab"] = {"accelerator": "tcg"}


def _short_fork(run: RunDirectory) -> None:
    run.events = [event for event in run.events if event.kind != PAGE_TABLE_COPY]
    next(event for event in run.events if event.kind == FORK).duration = 200_000


def _copy(duration: int) -> Plant:
    def change(run: RunDirectory) -> None:
        run.manifest["mechanism"] = {"name": "odf", "knob": "k", "wanted": "1", "read_back": "1"}
        next(event for event in run.events if event.kind == PAGE_TABLE_COPY).duration = duration

    return change


REASONS: dict[str, tuple[list[Plant], list[Plant], str]] = {
    # The probe's fork takes 10 ms; a tenth of the greater of both may be between them.
    "latest_fork_usec above": ([_info(latest_fork_usec=11_111)], [_info(latest_fork_usec=11_112)], "ms apart"),
    "latest_fork_usec below": ([_info(latest_fork_usec=9_000)], [_info(latest_fork_usec=8_999)], "ms apart"),
    "latest_fork_usec of a short fork": (
        [_short_fork, _info(latest_fork_usec=300)],
        [_short_fork, _info(latest_fork_usec=301)],
        "µs apart",
    ),
    "latest_fork_usec under emulation": (
        [_emulated, _info(latest_fork_usec=12_500)],
        [_emulated, _info(latest_fork_usec=12_501)],
        "ms apart",
    ),
    # 10 us a table, and 50 under emulation.
    "cost of a shared table": (
        [_copy(3_250_000), _before(page_table_bytes=325 * 4096)],
        [_copy(3_250_001), _before(page_table_bytes=325 * 4096)],
        "copied them as the default fork",
    ),
    "cost of a shared table under emulation": (
        [_emulated, _copy(5_000_000), _before(page_table_bytes=100 * 4096)],
        [_emulated, _copy(5_000_001), _before(page_table_bytes=100 * 4096)],
        "copied them as the default fork",
    ),
    "tables that tell a mechanism": (
        [_copy(9_000_000), _before(page_table_bytes=63 * 4096)],
        [_copy(9_000_000), _before(page_table_bytes=64 * 4096)],
        "copied them as the default fork",
    ),
}


@pytest.mark.parametrize(("within", "beyond", "words"), REASONS.values(), ids=REASONS)
def test_a_run_is_rejected_beyond_the_bound_and_not_at_it(
    tmp_path: Path, within: list[Plant], beyond: list[Plant], words: str
) -> None:
    assert _judged(tmp_path / "within", *within).reasons == []
    (reason,) = _judged(tmp_path / "beyond", *beyond).reasons
    assert words in reason


@pytest.mark.parametrize(("copied", "tables", "valid"), [(150, 300, True), (149, 300, False), (151, 301, True)])
def test_async_fork_leaves_half_of_the_tables_at_least(tmp_path: Path, copied: int, tables: int, valid: bool) -> None:
    verdict = judge(_result(async_fork(copied=copied, tables=tables), tmp_path / "run"))
    assert (verdict.reasons == []) == valid
    assert valid or "copied the others itself" in verdict.reasons[0]


def test_so_few_tables_that_async_fork_leaves_none_are_64(tmp_path: Path) -> None:
    for tables, words in ((63, "async-fork leaves so few to nobody"), (64, "async-fork was not used")):
        run = async_fork(copied=0, tables=tables)
        for event in run.events:
            if event.kind == 9:
                event.aux, event.context = flight_aux(tables, tables), 0
        run.manifest["server"]["before"]["page_table_bytes"] = tables * 4096
        run.events = [event for event in run.events if event.kind != PAGE_TABLE_COPY]
        verdict = judge(_result(run, tmp_path / str(tables)))
        said = verdict.warnings if tables == 63 else verdict.reasons
        assert any(words in sentence for sentence in said), verdict
        assert (verdict.reasons == []) == (tables == 63)


def _interruptions(count: int) -> Plant:
    begin = RunDirectory.fork_start + 20 * MS

    def add(run: RunDirectory) -> None:
        run.events += [Event(INTERRUPTION, begin + index * 100_000, 2_000) for index in range(count)]

    return add


def _of_snapshot(count: int) -> Plant:
    """Keep so many queries of the snapshot class."""

    def keep(run: RunDirectory) -> None:
        inside = [q for q in run.queries if RunDirectory.fork_start <= q.intended <= RunDirectory.window_end]
        dropped = {id(query) for query in inside[count:]}
        run.queries = [query for query in run.queries if id(query) not in dropped]

    return keep


def _of_normal(count: int) -> Plant:
    def keep(run: RunDirectory) -> None:
        measured = [q for q in run.queries if q.intended >= RunDirectory.warmup_end]
        normal = [q for q in measured if not RunDirectory.fork_start <= q.intended <= RunDirectory.window_end]
        dropped = {id(query) for query in normal[count // 2 : len(normal) - (count - count // 2)]}
        run.queries = [query for query in run.queries if id(query) not in dropped]

    return keep


def _keydb(told_us: int) -> Plant:
    def use(run: RunDirectory) -> None:
        run.manifest["server"] |= {"engine": "keydb", "threads": 4}
        run.manifest["info"]["latest_fork_usec"] = told_us

    return use


def _last_query(before_end_ns: int) -> Plant:
    """End the load so long before the window closed; 10 periods of the log's 10,000 a second are 1 ms."""

    def cut(run: RunDirectory) -> None:
        run.queries = [q for q in run.queries if q.intended < RunDirectory.window_end - 2 * MS]
        run.queries.append(Query(RunDirectory.window_end - before_end_ns))

    return cut


def _label(text: str) -> Plant:
    return lambda run: run.probe["probes"]["interruption"].update(label=text)


WARNINGS: dict[str, tuple[Plant, Plant, str]] = {
    # 620 MiB are 310 tables; twice that and 64 are possible.
    "interruptions": (_interruptions(684), _interruptions(685), "are more than the page tables"),
    "queries of the snapshot class": (_of_snapshot(1000), _of_snapshot(999), "snapshot class has only 999 queries"),
    "queries of the normal class": (_of_normal(1000), _of_normal(999), "normal class has only 999 queries"),
    "KeyDB's clock, the share": (_keydb(11_111), _keydb(11_112), "longer than the fork that the probe measured"),
    "the load's end": (_last_query(MS), _last_query(MS + 1), "The load ended 1 ms before the window"),
    "an approximate probe": (_label("exact"), _label("approximate"), "interruption is approximate"),
    "a probe per VMA": (_label("exact"), _label("per VMA"), "interruption is per VMA"),
}


@pytest.mark.parametrize(("within", "beyond", "words"), WARNINGS.values(), ids=WARNINGS)
def test_a_run_is_warned_of_beyond_the_bound_and_not_at_it(
    tmp_path: Path, within: Plant, beyond: Plant, words: str
) -> None:
    quiet, loud = (_judged(tmp_path / name, plant) for name, plant in (("within", within), ("beyond", beyond)))
    pattern = words.replace("999 ", "")
    assert not [sentence for sentence in quiet.warnings if pattern in sentence]
    assert [sentence for sentence in loud.warnings if words in sentence], loud.warnings
    assert quiet.reasons == loud.reasons == []


@pytest.mark.parametrize(("ambiguous", "warned"), [(20, False), (21, True)])
def test_one_in_a_hundred_of_the_snapshot_class_may_be_ambiguous(tmp_path: Path, ambiguous: int, warned: bool) -> None:
    result = _result(RunDirectory.whole(), tmp_path / "run")
    assert len(result.sorted_ns[SNAPSHOT]) == 2001
    clock = ClientClock(ORIGIN, 0.0, 0.0, 150_000, 100, 100_000)
    classes = result.classes.copy()
    classes[1000 : 1000 + ambiguous] = AMBIGUOUS
    warnings = judge(replace(result, run=replace(result.run, clock=clock), classes=classes)).warnings
    assert bool([sentence for sentence in warnings if "are in no class" in sentence]) == warned
    without = judge(replace(result, classes=classes)).warnings
    assert not [sentence for sentence in without if "are in no class" in sentence]


@pytest.mark.parametrize(("sent", "warned"), [(990.0, False), (989.999, True)])
def test_a_closed_loop_may_fall_short_of_its_rate_by_a_hundredth(tmp_path: Path, sent: float, warned: bool) -> None:
    path = _closed(tmp_path / "run", _seconds() | {"rate_wanted": 1000, "rate_sent": sent})
    warnings = judge(derive(read_run(path))).warnings
    assert bool([sentence for sentence in warnings if "instead of 1,000 queries a second" in sentence]) == warned


def test_the_generators_lag_is_that_of_measured_queries_alone(tmp_path: Path) -> None:
    """The warm-up, in which a generator may well be late, is in no figure; a lost query was sent, an unsent one not."""
    run = RunDirectory.whole()
    for query in run.queries:
        query.lag = 40_000_000 if query.intended < RunDirectory.warmup_end else 7_000
        query.latency += query.lag
    run.queries[3000].status, run.queries[3000].latency = 2, (1 << 44) - 1
    run.queries[3001].status, run.queries[3001].lag, run.queries[3001].latency = 4, (1 << 44) - 1, (1 << 44) - 1
    lags = sent_lags(_result(run, tmp_path / "run"))
    assert set(lags.tolist()) == {7_000}
    assert len(lags) == len(run.queries) - 200 - 1


@pytest.mark.parametrize(("slow", "base"), [(0.4, 100_000), (0.6, 150_000)])
def test_the_base_is_the_median_of_what_normal_queries_took(tmp_path: Path, slow: float, base: int) -> None:
    run = RunDirectory.whole()
    for index, query in enumerate(run.queries):
        normal = not RunDirectory.fork_start <= query.intended <= RunDirectory.window_end
        query.latency = query.lag + (150_000 if index % 10 < 10 * slow else 100_000) if normal else 900_000
    assert _result(run, tmp_path / "run").base_ns == base


def test_pings_of_three_times_the_quickest_are_kept_and_slower_ones_are_not() -> None:
    """640 pings in 32 stretches: a middle stretch whose best is held up just so much, or a nanosecond more."""
    when = np.arange(640, dtype=np.float64)
    for longest, kept in ((300, True), (301, False)):
        round_trips = np.full(640, 100, dtype=np.int64)
        round_trips[320:340] = longest
        chosen = _quickest(when, round_trips)
        assert bool(np.isin(np.arange(321, 339), chosen).any()) == kept
    # Four of each stretch, and its quickest ones.
    round_trips = np.full(640, 200, dtype=np.int64)
    round_trips[np.arange(640) % 20 >= 15] = 100
    chosen = _quickest(when, round_trips)
    assert (round_trips[chosen] == 100).mean() > 0.9
    assert len(chosen) == 32 * 4

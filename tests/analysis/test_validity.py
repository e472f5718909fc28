# SPDX-License-Identifier: Apache-2.0
"""Each reason and each warning is told of a run that was made to have that fault, and of no other."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.analysis.synthetic import (
    CHILD_EXIT,
    FORK,
    INTERRUPTION,
    MS,
    NEVER,
    PAGE_TABLE_COPY,
    RUN_QUEUE,
    WINDOW_END,
    Event,
    RunDirectory,
    S,
)

from forktail.analysis import Summary, analyse

Fault = Callable[[RunDirectory], None]


def _analysed(tmp_path: Path, fault: Fault) -> Summary:
    directory = RunDirectory.whole()
    fault(directory)
    return analyse(directory.write(tmp_path / "run"), write=False)


def _without(*kinds: int) -> Fault:
    def remove(run: RunDirectory) -> None:
        run.events = [event for event in run.events if event.kind not in kinds]

    return remove


def _info(name: str, value: object) -> Fault:
    return lambda run: run.manifest["info"].__setitem__(name, value)


def _mark(name: str, value: int) -> Fault:
    return lambda run: run.manifest["marks"]["snapshots"][0].__setitem__(name, value)


def _fate(status: int, *, lag: int = 5000, latency: int = NEVER) -> Fault:
    def change(run: RunDirectory) -> None:
        query = run.queries[4000]
        query.status, query.lag, query.latency = status, lag, latency

    return change


def _no_fork_probe(run: RunDirectory) -> None:
    _without(FORK)(run)
    run.probe["probes"]["fork"]["probe"] = None


def _two_asked_for(run: RunDirectory) -> None:
    run.manifest["marks"]["snapshots"] *= 2


def _no_trailer(run: RunDirectory) -> None:
    del run.probe["trailer"]


def _sequence_gap(run: RunDirectory) -> None:
    run.events[0].sequence = 0
    run.events[1].sequence = 4


def _late(run: RunDirectory) -> None:
    for query in run.queries[1000:1100]:
        query.lag += 2 * MS
        query.latency += 2 * MS


def _late_among_snapshot_queries(run: RunDirectory) -> None:
    """A pause of the generator within the window: 1.5 % of the snapshot queries, but 0.5 % of all."""
    for query in run.queries[2500:2530]:
        query.lag += 30 * MS
        query.latency += 30 * MS


def _load_ended_before_the_fork(run: RunDirectory) -> None:
    run.queries = run.queries[:1900]


def _stopped_by_limit(run: RunDirectory) -> None:
    _without(WINDOW_END, CHILD_EXIT)(run)
    run.manifest["truncated"] = True


def _mechanism(name: str, read_back: str = "1") -> Fault:
    def use(run: RunDirectory) -> None:
        run.manifest["mechanism"] = {"name": name, "knob": "/proc/1/use_odf", "wanted": "1", "read_back": read_back}

    return use


def _knob_fell_back(run: RunDirectory) -> None:
    _mechanism("odf", read_back="0")(run)
    _quick_copy(run)


def _quick_copy(run: RunDirectory) -> None:
    """A copy of 0.9 ms for 325 tables, as where tables are shared."""
    for event in run.events:
        if event.kind == PAGE_TABLE_COPY:
            event.duration = 900_000


def _shared(run: RunDirectory) -> None:
    _mechanism("odf")(run)
    _quick_copy(run)


def _emulated(run: RunDirectory) -> None:
    run.environment["lab"] = {"accelerator": "tcg"}
    _mechanism("odf")(run)


def _emulated_late_among_snapshot_queries(run: RunDirectory) -> None:
    _emulated(run)
    _late_among_snapshot_queries(run)


REASONS: list[tuple[str, Fault]] = [
    ("took 9.7 ms for 325 page tables, 29.8 µs each: it copied them as the default fork", _mechanism("odf")),
    ("/proc/1/use_odf held '0' and not '1'", _knob_fell_back),
    ("No fork of the server (pid 4242) was seen.", _without(FORK)),
    ("no probe for forks could be attached", _no_fork_probe),
    ("2 snapshots were asked for, but only 1 forks", _two_asked_for),
    ("was still open after 2 s", _without(WINDOW_END, CHILD_EXIT)),
    ("when its time limit stopped it", _stopped_by_limit),
    ("stopped by its time limit", lambda run: run.manifest.__setitem__("truncated", True)),
    ("different boots", lambda run: run.probe.__setitem__("boot_id", "boot-2")),
    ("3 of 8 kernel events were dropped", lambda run: run.probe["trailer"]["events"].__setitem__("dropped", 3)),
    ("emitted 9 kernel events, but its log holds 5", lambda run: run.probe["trailer"]["events"].update(emitted=9)),
    ("left no trailer", _no_trailer),
    ("3 kernel events are missing by the sequence numbers of CPU 0", _sequence_gap),
    ("latest_fork_usec says 12.5 ms: they are 2.5 ms apart", _info("latest_fork_usec", 12_500)),
    ("latest_fork_usec says 8.9 ms", _info("latest_fork_usec", 8_900)),
    ("rdb_last_bgsave_time_sec says 3 s", _info("rdb_last_bgsave_time_sec", 3)),
    ("rdb_last_bgsave_status is 'err'", _info("rdb_last_bgsave_status", "err")),
    ("began 1 ms before the snapshot was asked for", _mark("requested_ns", RunDirectory.fork_start + MS)),
    ("finished 500 ms before its window closed", _mark("finished_seen_ns", RunDirectory.window_end - S // 2)),
    ("1 of 5,800 measured queries got an error", _fate(1, latency=100_000)),
    ("1 of 5,800 measured queries were lost", _fate(2)),
    ("1 of 5,800 measured queries were still without a reply", _fate(3)),
    ("1 of 5,800 measured queries were due but never sent", _fate(4, lag=NEVER)),
    ("intended: log 6000, load.json 6001", lambda run: run.load.update(intended=6001)),
    ("completed: log 6000, load.json None", lambda run: run.load.update(completed=None)),
    ("do not add up", lambda run: run.load.update(conserved=False)),
    ("snapshot class is empty", _load_ended_before_the_fork),
    ("The load was 2 % off its schedule", lambda run: run.load.update(rate_error=-0.02)),
    ("of the p99 of normal queries 2 ms of 2.1 ms", _late),
    ("of the p99 of snapshot queries 30 ms", _late_among_snapshot_queries),
    ("30 ms of 30.1 ms (99.7 %)", _emulated_late_among_snapshot_queries),
]


@pytest.mark.parametrize(("words", "fault"), REASONS, ids=[words for words, _ in REASONS])
def test_a_fault_makes_the_run_invalid_for_its_reason_alone(tmp_path: Path, words: str, fault: Fault) -> None:
    summary = _analysed(tmp_path, fault)
    assert not summary.valid
    assert len(summary.reasons) == 1, summary.reasons
    assert words in summary.reasons[0]
    assert summary.reasons[0].endswith(".")


TOLERATED: list[Fault] = [
    lambda _: None,
    _shared,
    _emulated,
    _info("latest_fork_usec", 10_900),
    _info("rdb_last_bgsave_time_sec", 0),
    _info("rdb_last_bgsave_time_sec", 2),
    _without(WINDOW_END),
    _mark("finished_seen_ns", RunDirectory.window_end),
    lambda run: run.load.update(rate_error=0.0009),
]


@pytest.mark.parametrize("deviation", TOLERATED)
def test_a_deviation_within_its_tolerance_is_no_fault(tmp_path: Path, deviation: Fault) -> None:
    summary = _analysed(tmp_path, deviation)
    assert summary.valid, summary.reasons
    assert summary.warnings == []


def _wait(after_ns: int) -> Fault:
    def wait(run: RunDirectory) -> None:
        run.events.append(Event(RUN_QUEUE, run.fork_start + run.fork_ns + after_ns, 2_400_000, 1))
        run.manifest["info"]["latest_fork_usec"] = 12_500

    return wait


def test_a_wait_right_after_the_fork_is_in_the_servers_own_time_of_it(tmp_path: Path) -> None:
    """Redis' clock runs until it has a CPU again, which the child may have taken."""
    assert _analysed(tmp_path, _wait(0)).valid


def test_a_wait_later_on_does_not_excuse_another_time_of_the_fork(tmp_path: Path) -> None:
    (reason,) = _analysed(tmp_path, _wait(20 * MS)).reasons
    assert "latest_fork_usec says 12.5 ms: they are 2.5 ms apart" in reason


def test_a_short_fork_may_differ_by_a_tenth_of_a_millisecond(tmp_path: Path) -> None:
    def shorten(run: RunDirectory) -> None:
        run.events = [event for event in run.events if event.kind != 2]
        next(event for event in run.events if event.kind == FORK).duration = 200_000
        run.manifest["info"]["latest_fork_usec"] = 290

    assert _analysed(tmp_path, shorten).valid


def _one_late_query(run: RunDirectory) -> None:
    run.queries[3000].lag += 20 * MS
    run.queries[3000].latency += 20 * MS


def _few(run: RunDirectory) -> None:
    run.queries = run.queries[:200] + run.queries[200::10]


def _many_interruptions(run: RunDirectory) -> None:
    begin = RunDirectory.fork_start + 20 * MS
    run.events += [Event(INTERRUPTION, begin + index * 100_000, 20_000) for index in range(1000)]


def _failed_in_warm_up(run: RunDirectory) -> None:
    run.queries[7].status = 1


def _no_info(run: RunDirectory) -> None:
    run.manifest["info"] = {"rdb_last_bgsave_status": "ok", "rdb_last_bgsave_time_sec": 1}


def _load_stopped_early(run: RunDirectory) -> None:
    run.queries = run.queries[:3500]


WARNINGS: list[tuple[str, Fault]] = [
    ("Swap is on.", lambda run: run.manifest["warnings"].append("Swap is on.")),
    ("The load was 0.5 % off its schedule", lambda run: run.load.update(rate_error=0.005)),
    ("the maximum (10 ms of 20.1 ms)", _one_late_query),
    ("snapshot class has only 201 queries", _few),
    ("1,000 interruptions are more than the page tables", _many_interruptions),
    ("1 queries of the warm-up failed", _failed_in_warm_up),
    ("had no latest_fork_usec", _no_info),
    ("lost 4 returns", lambda run: run.probe["trailer"]["unmatched"].update({"kretprobe copy_pmd_range": 4})),
    ("interruption is approximate", lambda run: run.probe["probes"]["interruption"].update(label="approximate")),
    ("load ended 250 ms before the window of snapshot 1 closed", _load_stopped_early),
]


@pytest.mark.parametrize(("words", "fault"), WARNINGS, ids=[words for words, _ in WARNINGS])
def test_a_weakness_is_a_warning_and_leaves_the_run_valid(tmp_path: Path, words: str, fault: Fault) -> None:
    summary = _analysed(tmp_path, fault)
    assert summary.valid, summary.reasons
    assert any(words in warning for warning in summary.warnings), summary.warnings


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    def many(run: RunDirectory) -> None:
        _info("rdb_last_bgsave_status", "err")(run)
        _fate(2)(run)
        run.load.update(rate_error=0.5)

    assert len(_analysed(tmp_path, many).reasons) == 3

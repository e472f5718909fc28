# SPDX-License-Identifier: Apache-2.0
"""The split of latencies: exact, never negative, and right where a simulated server makes the truth known."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.analysis.synthetic import FAULT, FORK, INTERRUPTION, RUN_QUEUE, SERVER, Event, Query, event_log, query_log

from forktail.analysis.attribute import CAUSES, PARTS, Attribution, Stalls, attribute, causes
from forktail.analysis.eventlog import EventLog, read_event_log
from forktail.analysis.querylog import QueryLog, read_query_log

US = 1000


def _events(events: list[Event]) -> EventLog:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "events.bin"
        path.write_bytes(event_log(events))
        return read_event_log(path)


def _queries(queries: list[Query]) -> QueryLog:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "queries.bin"
        path.write_bytes(query_log(queries))
        return read_query_log(path)


def _split(queries: list[Query], events: list[Event], base: int) -> tuple[Attribution, dict[str, list[int]]]:
    log = _queries(queries)
    attribution = attribute(log, log.status <= 1, base, Stalls(_events(events), frozenset((SERVER,))))
    parts = attribution.split(slice(None))
    return attribution, dict(zip(PARTS, parts.tolist(), strict=True))


QUERIES = st.lists(
    st.tuples(st.integers(0, 3000), st.integers(0, 300), st.integers(0, 2000), st.sampled_from([0, 0, 0, 1])),
    max_size=40,
)
EVENTS = st.lists(
    st.tuples(st.sampled_from([FORK, INTERRUPTION, FAULT, RUN_QUEUE]), st.integers(0, 4000), st.integers(0, 900)),
    max_size=20,
)


def _queries_of(drawn: list[tuple[int, int, int, int]]) -> list[Query]:
    return [
        Query(intended, latency=lag + rest, lag=lag, status=status) for intended, lag, rest, status in sorted(drawn)
    ]


@given(QUERIES, EVENTS, st.integers(0, 500))
def test_parts_sum_to_the_latency_and_none_is_negative(
    drawn: list[tuple[int, int, int, int]], spans: list[tuple[int, int, int]], base: int
) -> None:
    queries = _queries_of(drawn)
    attribution, _ = _split(queries, [Event(*span) for span in spans], base)
    parts = attribution.split(slice(None))
    assert (parts >= 0).all()
    assert parts.sum(axis=0).tolist() == [query.latency for query in queries]
    assert (causes(parts) < len(CAUSES)).all()


@given(QUERIES, EVENTS)
def test_stalls_are_the_time_that_they_cover_while_a_query_is_outstanding(
    drawn: list[tuple[int, int, int, int]], spans: list[tuple[int, int, int]]
) -> None:
    queries = _queries_of(drawn)
    _, parts = _split(queries, [Event(*span) for span in spans], 100)
    covered: dict[str, set[int]] = {}
    taken: set[int] = set()
    kinds = (("fork", FORK), ("run_queue", RUN_QUEUE), ("interruption", INTERRUPTION), ("cow_fault", FAULT))
    for name, kind in kinds:
        instants = {t for k, start, length in spans if k == kind for t in range(start, start + length)}
        covered[name] = instants - taken
        taken |= instants
    for index, query in enumerate(queries):
        outstanding = range(query.intended + query.lag, query.intended + query.latency)
        for name, instants in covered.items():
            assert parts[name][index] == len(instants.intersection(outstanding)), name
        assert parts["client_lag"][index] == query.lag


def _fifo(arrivals: list[int], service: int, stall: tuple[int, int]) -> list[int]:
    """Completions of a server that takes one query after another and does nothing in [stall[0], stall[1])."""
    free, completed = 0, []
    for arrival in arrivals:
        begin = max(arrival, free)
        if stall[0] <= begin < stall[1]:
            begin = stall[1]
        free = begin + service
        if begin < stall[0] < free:
            free += stall[1] - stall[0]
        completed.append(free)
    return completed


@settings(max_examples=40)
@given(st.integers(15, 200), st.integers(1, 14), st.integers(100, 20_000), st.integers(0, 2**32 - 1))
def test_a_fork_stall_of_a_fifo_server_explains_all_excess(gap: int, service: int, length: int, seed: int) -> None:
    """Arrivals `gap` us apart never queue by themselves, so all delay is the fork's: directly, or behind it."""
    random = np.random.default_rng(seed)
    gaps = gap * US + random.integers(0, 20 * US, 3000)
    arrivals = np.cumsum(gaps).tolist()
    stall_start = arrivals[500] + int(random.integers(0, gap * US))
    stall = (stall_start, stall_start + length * US)
    completed = _fifo(arrivals, service * US, stall)
    queries = [Query(arrival, latency=done - arrival, lag=0) for arrival, done in zip(arrivals, completed, strict=True)]
    _, parts = _split(queries, [Event(FORK, stall[0], stall[1] - stall[0], aux=1)], service * US)
    assert not any(parts["unexplained"])
    for index, (arrival, done) in enumerate(zip(arrivals, completed, strict=True)):
        direct = max(0, min(done, stall[1]) - max(arrival, stall[0]))
        assert parts["fork"][index] == direct
        assert parts["service"][index] == service * US
        assert parts["behind_fork"][index] == done - arrival - direct - service * US
    if length > 2 * (gap + 20):
        assert sum(parts["behind_fork"]) > 0


def test_a_stall_is_not_blamed_after_its_pile_is_gone() -> None:
    queries = [
        Query(0, 1100, 0),  # Meets the fork.
        Query(2000, 100, 0),  # Answered at once: the pile is gone.
        Query(2050, 900, 0),  # Slow again, and the fork is not why.
    ]
    _, parts = _split(queries, [Event(FORK, 10, 1000, aux=1)], 100)
    assert parts["fork"] == [1000, 0, 0]
    assert parts["behind_fork"] == [0, 0, 0]
    assert parts["unexplained"] == [0, 0, 800]


def test_a_long_wait_is_not_queueing_behind_a_short_stall_in_it() -> None:
    """The fault delays the query itself, and left no backlog that it could have met."""
    _, parts = _split([Query(0, 1000, 0)], [Event(FAULT, 100, 7)], 100)
    assert parts["cow_fault"] == [7]
    assert parts["behind_cow_fault"] == [0]
    assert parts["service"] == [100]
    assert parts["unexplained"] == [1000 - 7 - 100]


def test_queueing_is_shared_among_stalls_by_their_length() -> None:
    queries = [Query(0, 50, 0), Query(1000, 500, 0), Query(1450, 250, 0)]
    events = [Event(FORK, 1000, 300, aux=1), Event(INTERRUPTION, 1300, 100)]
    _, parts = _split(queries, events, 50)
    assert (parts["fork"][2], parts["interruption"][2]) == (0, 0)
    assert (parts["behind_fork"][2], parts["behind_interruption"][2], parts["service"][2]) == (150, 50, 50)


def test_preemption_inside_a_fault_is_not_the_fault() -> None:
    _, parts = _split([Query(0, 1000, 0)], [Event(FAULT, 100, 300), Event(RUN_QUEUE, 150, 200)], 700)
    assert (parts["cow_fault"], parts["run_queue"]) == ([100], [200])


def test_waiting_for_room_in_a_socket_is_waiting_for_the_server() -> None:
    """The fork takes 500 us; a query due as it begins cannot be sent for 400 us, as the server does not read."""
    held = Query(1000 * US, latency=600 * US, lag=400 * US, held=400 * US)
    _, parts = _split([held], [Event(FORK, 1000 * US, 500 * US)], 100 * US)
    assert (parts["client_lag"], parts["fork"], parts["service"]) == ([0], [500 * US], [100 * US])


def test_only_the_time_that_the_socket_was_full_is_the_servers() -> None:
    """Stopped for 300 us before it found the socket full, which then took 100 us: the first is the generator's."""
    held = Query(1000 * US, latency=600 * US, lag=400 * US, held=100 * US)
    _, parts = _split([held], [], 100 * US)
    assert (parts["client_lag"], parts["service"], parts["unexplained"]) == ([300 * US], [100 * US], [200 * US])


def test_stalls_of_threads_that_serve_no_queries_are_left_out() -> None:
    _, parts = _split([Query(0, 1000, 0)], [Event(RUN_QUEUE, 100, 300, tid=SERVER + 1)], 1000)
    assert parts["run_queue"] == [0]
    assert parts["service"] == [1000]


def test_a_query_without_a_reply_has_no_split() -> None:
    log = _queries([Query(0, 2**44 - 1, 5, status=2)])
    with pytest.raises(ValueError, match="without a reply"):
        attribute(log, np.array([True]), 0, Stalls(_events([])))

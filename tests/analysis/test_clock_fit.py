# SPDX-License-Identifier: Apache-2.0
"""The fit of another host's clock to the nanosecond, on pings whose line and error follow by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tests.analysis.synthetic import MS, ORIGIN, RunDirectory

from forktail import rundir
from forktail.analysis.clock import ClientClock, _quickest, fit, move, read_client
from forktail.analysis.querylog import read_query_log
from forktail.errors import BadInput

S = 10**9
Int64 = npt.NDArray[np.int64]
OFFSET = 7 * S
DWELL = 1_000


def _pings(at: list[int], there: list[int], back: list[int], drift: float = 0.0, dwell: int = DWELL) -> Int64:
    """Pings asked at times of the server's clock; the client's is OFFSET ahead, and `drift` more with each ns."""
    asked = np.array(at, dtype=np.int64)
    read, answered = asked + there, asked + there + dwell

    def client(time: Int64) -> Int64:
        moved: Int64 = time + OFFSET + np.rint(drift * (time - asked[0])).astype(np.int64)
        return moved

    return np.stack([asked, client(read), client(answered), answered + back], axis=1)


def test_pings_on_a_line_give_that_line_and_half_a_round_trip() -> None:
    at = [S + index * 20 * MS for index in range(64)]
    clock = fit(_pings(at, [50_000] * 64, [50_000] * 64))
    assert clock.origin_ns == S + 50_000 + OFFSET
    assert (clock.offset_ns, clock.pings, clock.round_trip_ns) == (-OFFSET, 64, 100_000)
    assert clock.drift == pytest.approx(0, abs=1e-12)
    # What the client did between reading and answering is no part of the way.
    assert 50_000 <= clock.error_ns <= 50_001


def test_a_drift_is_found() -> None:
    at = [S + index * 20 * MS for index in range(64)]
    clock = fit(_pings(at, [50_000] * 64, [50_000] * 64, drift=1e-3))
    assert clock.drift == pytest.approx(-1e-3 / (1 + 1e-3), rel=1e-6)
    moved = clock.on_server(np.array([clock.origin_ns + round(S * 1.001)], dtype=np.int64))
    assert abs(int(moved[0]) - (S + 50_000 + S)) < 100


def test_a_quick_ping_weighs_more_by_how_quick_it_is() -> None:
    """Weighted least squares by hand, of pings in turn quick and true, and slow and all of it on the way there."""
    at = [S + index * 20 * MS for index in range(64)]
    there = [50_000 if index % 2 else 250_000 for index in range(64)]
    back = [50_000] * 64
    pings = _pings(at, there, back)
    clock = fit(pings)
    asked, read, answered, came = pings.T
    when = (read + answered) / 2 - read[0]
    offsets = ((asked - read) + (came - answered)) / 2
    weights = 1 / ((came - asked) - (answered - read))
    matrix = np.stack([when, np.ones(64)], axis=1) * weights[:, None]
    drift, offset = np.linalg.lstsq(matrix, (offsets + OFFSET) * weights, rcond=None)[0]
    assert clock.offset_ns == pytest.approx(offset - OFFSET, abs=1)
    assert clock.drift == pytest.approx(drift, rel=1e-3)
    assert -100_000 < offset < -1_000
    # The ping that is furthest off: half of its way, and its distance from the line.
    off = np.abs(offsets + OFFSET - offset - drift * when)
    assert abs(clock.error_ns - (1 / weights / 2 + off).max()) <= 2


def test_before_the_first_kept_ping_and_after_the_last_the_error_grows() -> None:
    """A second at either end has slow pings but for one in its middle: the line leans twice by what lies outside."""
    slow, quick = 10_000_000, 1_000_000
    at, there = [], []
    for index in range(640):
        at.append(S + index * 10 * MS)
        first, last = index < 20, index >= 620
        best = index == 10 or index == 635 or not (first or last)
        there.append(quick if best else slow)
    pings = _pings(at, there, there)
    clock = fit(pings)
    when = (pings[:, 1] + pings[:, 2]) / 2 - pings[0, 1]
    first_kept, last_kept = when[10], when[635]
    outside = max(first_kept - when.min(), when.max() - last_kept) / (last_kept - first_kept)
    assert outside > 0.01
    assert clock.error_ns == pytest.approx(math.ceil(quick * (1 + 2 * outside)), abs=2)
    assert clock.round_trip_ns == 2 * quick


def test_pings_of_one_moment_tell_no_drift() -> None:
    clock = fit(_pings([S] * 8, [500] * 8, [500] * 8))
    assert (clock.offset_ns, clock.drift, clock.error_ns) == (-OFFSET, 0.0, 500)


def test_eight_pings_are_enough_and_a_way_may_take_no_time() -> None:
    at = [S + index * MS for index in range(8)]
    clock = fit(_pings(at, [0] * 8, [0] * 8, dwell=0))
    assert (clock.pings, clock.round_trip_ns, clock.error_ns) == (8, 0, 0)
    with pytest.raises(ValueError, match=r"^fewer than 8 pings$"):
        fit(_pings(at[:7], [0] * 7, [0] * 7))


@pytest.mark.parametrize("shape", [(40,), (10, 3), (10, 5), (10, 4, 4)])
def test_what_is_no_table_of_four_times_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^fewer than 8 pings$"):
        fit(np.zeros(shape, dtype=np.int64))


@pytest.mark.parametrize(("there", "dwell"), [(-1, 0), (5, -1)])
def test_a_ping_that_runs_backwards_is_refused(there: int, dwell: int) -> None:
    at = [S + index * MS for index in range(10)]
    with pytest.raises(ValueError, match=r"^a ping that came back before it was sent$"):
        fit(_pings(at, [there] * 10, [0] * 10, dwell=dwell))


def _chosen(round_trips: list[int]) -> set[int]:
    when = np.arange(len(round_trips), dtype=np.float64)
    return set(_quickest(when, np.array(round_trips, dtype=np.int64)).tolist())


def test_quick_is_three_times_the_median_of_the_quickest_tenth() -> None:
    """32 stretches of 20 pings: 640 // 10 = 64 are the tenth, half of them 100 and half 200: 3 x 150."""
    for longest, kept in ((450, True), (451, False)):
        trips = [10_000] * 640
        for stretch in range(1, 31):
            trips[20 * stretch : 20 * stretch + 2] = [100 if stretch < 16 else 200] * 2
        trips[0:2] = [100] * 2  # 32 of 100, and with the next line 32 of 200.
        trips[638:640] = [200] * 2
        trips[310] = longest
        assert (310 in _chosen(trips)) == kept


def test_of_few_pings_the_quickest_is_the_measure() -> None:
    trips = [100, *[300] * 8, 301, *[300] * 8, 300]
    assert _chosen(trips) == set(range(19)) - {9}
    # No way takes less than a nanosecond: 3 are quick then, and 4 are not.
    assert _chosen([0, *[3] * 8, 4, *[3] * 8, 0]) == set(range(19)) - {9}


def test_the_best_ping_of_either_end_is_kept_however_slow() -> None:
    trips = [100] * 640
    trips[:20], trips[20:40] = [9_000] * 20, [8_000] * 20
    trips[600:620], trips[620:] = [8_000] * 20, [9_000] * 20
    trips[7], trips[630] = 5_000, 6_000
    chosen = _chosen(trips)
    assert {index for index in chosen if trips[index] > 100} == {7, 630}
    assert len(chosen) == 28 * 4 + 2


def test_times_are_moved_as_whole_nanoseconds_and_in_order() -> None:
    clock = ClientClock(S, -3.5e9, 0.0, 1, 8, 1)
    moved = clock.on_server(np.array([2**60, 2**60 + 1, 2**60 + 3], dtype=np.int64))
    assert moved.dtype == np.int64
    assert moved.tolist() == [2**60 - 3_500_000_000, 2**60 + 1 - 3_500_000_000, 2**60 + 3 - 3_500_000_000]
    backwards = replace(clock, drift=-1.5)
    assert backwards.on_server(np.array([S, S + 10, S + 20], dtype=np.int64)).tolist() == [S - 3_500_000_000] * 3
    assert backwards.on_server(np.empty(0, dtype=np.int64)).tolist() == []


def test_the_log_of_a_client_is_moved_and_how_long_things_took_is_not(tmp_path: Path) -> None:
    path = RunDirectory.whole().write(tmp_path / "run")
    queries = read_query_log(path / rundir.QUERY_LOG)
    moved = move(queries, ClientClock(ORIGIN, -float(OFFSET), 0.0, 1, 8, 1))
    assert (moved.intended_ns == queries.intended_ns - OFFSET).all()
    assert moved.start_ns == queries.start_ns - OFFSET
    assert (moved.latency_ns == queries.latency_ns).all()


def test_client_json_is_read_whole_or_refused(tmp_path: Path) -> None:
    path = tmp_path / rundir.CLIENT
    pings = _pings([S + index * MS for index in range(8)], [500] * 8, [500] * 8).tolist()
    document = {"schema": rundir.CLIENT_SCHEMA, "host": "there", "pings": pings}
    path.write_text(json.dumps(document))
    told, clock = read_client(path)
    assert told == {"schema": rundir.CLIENT_SCHEMA, "host": "there"}
    assert (clock.pings, clock.offset_ns) == (8, -OFFSET)
    for wrong in (pings[:7], [[1, 2]], "none", None, [[2**70] * 4] * 8):
        path.write_text(json.dumps(document | {"pings": wrong}))
        with pytest.raises(BadInput, match=rf"{rundir.CLIENT} has no pings that tell .* \(.+\): run again"):
            read_client(path)
    path.write_text(json.dumps(document | {"schema": "forktail.client/99"}))
    with pytest.raises(BadInput, match=r"forktail\.client/99"):
        read_client(path)
    path.write_text(json.dumps({key: value for key, value in document.items() if key != "pings"}))
    with pytest.raises(BadInput, match=r"'pings'"):
        read_client(path)

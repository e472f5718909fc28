# SPDX-License-Identifier: Apache-2.0
"""A figure that owes too much to the load generator is withheld, with its reason; one that does not is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.analysis.synthetic import MS, RunDirectory, S

from forktail.analysis import analyse
from forktail.analysis.lag_effect import FLOOR_NS, SHARE, LagEffect, lag_effects

US = 1000


def _late(run: RunDirectory, rows: slice, ns: int) -> None:
    for query in run.queries[rows]:
        query.lag += ns
        query.latency += ns


def _document(tmp_path: Path, run: RunDirectory) -> dict[str, Any]:
    return analyse(run.write(tmp_path / "run"), write=False).document


@pytest.mark.parametrize(
    ("figure_ns", "owed_ns", "withheld"),
    [
        (10 * MS, round(SHARE * 10 * MS) + 1, True),
        (10 * MS, round(SHARE * 10 * MS), False),
        (150 * US, FLOOR_NS + 1, True),
        (150 * US, FLOOR_NS, False),
        (10 * MS, 0, False),
        (0, 0, False),
    ],
)
def test_both_bounds_from_both_sides(figure_ns: int, owed_ns: int, withheld: bool) -> None:
    assert LagEffect(figure_ns, figure_ns - owed_ns).withheld is withheld


def test_the_effect_is_that_of_each_percentile_and_not_of_its_query() -> None:
    """The slowest query owes all to the generator; the second slowest, which owes nothing, is the next."""
    latency = np.array([100] * 98 + [40_000_000, 95_000_000], dtype=np.int64)
    owed = np.array([0] * 98 + [0, 90_000_000], dtype=np.int64)
    effects = lag_effects(latency, owed)
    assert effects["max"] == LagEffect(95_000_000, 40_000_000)
    assert effects["p99"] == LagEffect(40_000_000, 5_000_000)
    assert effects["p50"] == LagEffect(100, 100)
    assert lag_effects(latency[:0], owed[:0]) == {}


def test_a_maximum_that_the_generator_made_is_null_with_a_reason(tmp_path: Path) -> None:
    """Stopped for 80 ms among normal queries: 2.9 % of them are late, and the run's own p99 with them."""
    run = RunDirectory.whole()
    _late(run, slice(500, 503), 80 * MS)
    document = _document(tmp_path, run)
    assert document["valid"], document["reasons"]
    normal = document["queries"]["normal"]
    assert normal["max_us"] is None
    assert normal["p9999_us"] is None
    assert normal["p99_us"] == pytest.approx(106, abs=1)
    assert "80 ms of 80.1 ms (99.9 %) came from the load generator's own lateness" in normal["withheld"]["max"]
    assert normal["lag_effect_us"]["max"] == pytest.approx(80_000, abs=10)
    assert document["queries"]["snapshot"]["withheld"] == {}
    assert document["queries"]["snapshot"]["max_us"] is not None
    (warning,) = [text for text in document["warnings"] if "withheld" in text]
    assert "Figures of normal queries are withheld" in warning
    assert "the maximum (80 ms of 80.1 ms)" in warning


def test_lateness_that_no_figure_owes_anything_to_is_not_mentioned(tmp_path: Path) -> None:
    """A wakeup of 50 us before each query, as on 29 of 30 runs of a quiet host."""
    run = RunDirectory.whole()
    _late(run, slice(0, 6000), 50 * US)
    document = _document(tmp_path, run)
    assert document["valid"]
    assert not [text for text in document["warnings"] if "generator" in text]
    normal = document["queries"]["normal"]
    assert normal["withheld"] == {}
    assert normal["lag_effect_us"]["p99"] == pytest.approx(55, abs=0.1)


@pytest.mark.parametrize(("late_ns", "valid"), [(900 * US, True), (1100 * US, False)])
def test_a_class_whose_p99_is_the_generators_is_no_result(tmp_path: Path, late_ns: int, valid: bool) -> None:
    run = RunDirectory.whole()
    _late(run, slice(1000, 1100), late_ns)
    document = _document(tmp_path, run)
    assert document["queries"]["normal"]["p99_us"] is None
    assert document["valid"] is valid
    assert any("The generator was late" in reason for reason in document["reasons"]) is not valid


def test_a_withheld_p99_is_not_in_the_answer(tmp_path: Path) -> None:
    run = RunDirectory.whole()
    _late(run, slice(2000, 2100), 30 * MS)
    assert "Snapshot p99 is withheld" in _document(tmp_path, run)["answer"]


@pytest.mark.parametrize(("without", "warned"), [(57, False), (60, True)])
def test_replies_without_a_receive_timestamp_are_reported(tmp_path: Path, without: int, warned: bool) -> None:
    """1 % of 5,800 measured replies."""
    run = RunDirectory.whole()
    for query in run.queries[1000 : 1000 + without]:
        query.stamped, query.read_delay = 0, 0
    document = _document(tmp_path, run)
    assert document["load"]["unstamped"] == without
    assert any("no receive timestamp" in warning for warning in document["warnings"]) is warned


def test_a_delay_in_reading_is_reported_and_no_part_of_a_latency(tmp_path: Path) -> None:
    run = RunDirectory.whole()
    before = _document(tmp_path, run)["queries"]
    run.queries[3000].read_delay = 3 * S
    document = analyse(run.write(tmp_path / "late"), write=False).document
    assert document["queries"] == before
    assert document["load"]["read_delay_max_us"] == 3e6


def test_a_clock_that_was_set_is_reported(tmp_path: Path) -> None:
    run = RunDirectory.whole()
    run.load["clock_steps"] = 1
    assert any("time of day was set 1 time" in warning for warning in _document(tmp_path, run)["warnings"])


def test_chance_in_the_arrivals_is_no_error_of_the_rate(tmp_path: Path) -> None:
    """A Poisson schedule of 2000 queries may be 3 % off its rate by chance, and the generator kept it."""
    run = RunDirectory.whole()
    run.load |= {"rate_wanted": 2000.0, "rate_intended": 1940.0, "rate_sent": 1940.0, "rate_error": 0.0}
    document = _document(tmp_path, run)
    assert document["valid"]
    assert not [text for text in document["warnings"] if "schedule" in text]


@pytest.mark.parametrize(
    ("error", "valid", "mentioned"),
    [(0.001, True, False), (0.0011, True, True), (-0.01, True, True), (-0.0101, False, True)],
)
def test_each_bound_of_the_rate_from_both_sides(tmp_path: Path, error: float, valid: bool, mentioned: bool) -> None:
    run = RunDirectory.whole()
    run.load["rate_error"] = error
    document = _document(tmp_path, run)
    assert document["valid"] is valid
    assert any("off its schedule" in text for text in [*document["reasons"], *document["warnings"]]) is mentioned

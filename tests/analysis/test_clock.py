# SPDX-License-Identifier: Apache-2.0
"""Another host's clock, fitted to pings of which the truth is known."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from forktail.analysis.classify import AMBIGUOUS, NORMAL, SNAPSHOT, WARMUP, classify
from forktail.analysis.clock import fit

S = 10**9
Int64 = npt.NDArray[np.int64]


def _pings(seed: int, offset: int, drift: float, way_ns: float, seconds: int = 60) -> tuple[Int64, Int64, Int64]:
    """Pings as two hosts take them, ways of a gamma distribution with held-up ones; and the truth of both clocks."""
    random = np.random.default_rng(seed)
    when = np.sort(np.concatenate([random.uniform(0, 0.02, 64), np.arange(1, seconds * 10) / 10,
                                   seconds + random.uniform(0, 0.02, 64)]))  # fmt: skip
    asked = (1000 * S + when * S).astype(np.int64)
    there, back = (way_ns + random.gamma(1, way_ns, (2, len(asked)))).astype(np.int64)
    there[random.random(len(there)) < 0.1] += random.integers(0, 100 * int(way_ns))
    read = asked + there
    answered = read + 5_000
    returned = answered + back

    def on_client(server_ns: Int64) -> Int64:
        moved: Int64 = server_ns + offset + np.rint(drift * (server_ns - asked[0])).astype(np.int64)
        return moved

    truth = np.linspace(asked[0], returned[-1], 5000).astype(np.int64)
    pings = np.stack([asked, on_client(read), on_client(answered), returned], axis=1)
    return pings, on_client(truth), truth


@pytest.mark.parametrize("offset", [0, 7 * S, -900 * S, 10**15])
@pytest.mark.parametrize("drift", [0.0, 2e-5, -1e-4])
def test_the_truth_lies_within_the_error(offset: int, drift: float) -> None:
    missed = 0
    for seed in range(20):
        pings, client, server = _pings(seed, offset, drift, way_ns=50_000)
        clock = fit(pings)
        missed += int(abs(clock.on_server(client) - server).max() > clock.error_ns)
        assert abs(clock.drift + drift) < 2e-6
        # No worse than what a single quick ping and its neighbours allow.
        assert clock.error_ns < 200_000
    assert missed == 0


@pytest.mark.parametrize("held", [slice(0, 70), slice(-70, None), slice(70, -70)], ids=["first", "last", "between"])
def test_pings_held_up_for_a_while(held: slice) -> None:
    """Without those at its ends, a line leans by what pings of a few milliseconds say."""
    for seed in range(20):
        pings, client, server = _pings(seed, 7 * S, 2e-5, way_ns=50_000)
        late = np.random.default_rng(seed).integers(300_000, 2_000_000, (len(pings), 2))[held]
        pings[held, 1:] += late[:, :1]
        pings[held, 3:] += late[:, 1:]
        clock = fit(pings)
        assert abs(clock.on_server(client) - server).max() <= clock.error_ns < 3_000_000


def test_only_the_last_pings_were_quick() -> None:
    pings, client, server = _pings(1, 7 * S, 2e-5, way_ns=10_000)
    pings[:-64, 1:] += 400_000
    pings[:-64, 3:] += 10_000
    clock = fit(pings)
    assert abs(clock.on_server(client) - server).max() <= clock.error_ns < 1_000_000


def test_a_way_longer_there_than_back_is_within_the_error_too() -> None:
    pings, client, server = _pings(1, 0, 0.0, way_ns=50_000)
    pings[:, 1:] += 300_000
    clock = fit(pings)
    assert abs(clock.on_server(client) - server).max() <= clock.error_ns


def test_the_order_of_times_is_kept() -> None:
    clock = fit(_pings(3, -5 * S, -1e-4, way_ns=20_000)[0])
    times = np.arange(0, 10_000, dtype=np.int64) + 995 * S
    assert (np.diff(clock.on_server(times)) >= 0).all()
    assert len(clock.on_server(np.empty(0, dtype=np.int64))) == 0


@pytest.mark.parametrize(
    ("pings", "said"),
    [
        (np.empty((0, 4), dtype=np.int64), "fewer than 8 pings"),
        (np.arange(12, dtype=np.int64).reshape(4, 3), "fewer than 8 pings"),
        (np.tile(np.array([[100, 50, 50, 90]], dtype=np.int64), (10, 1)), "came back before it was sent"),
        (np.tile(np.array([[100, 50, 40, 900]], dtype=np.int64), (10, 1)), "came back before it was sent"),
    ],
)
def test_pings_that_tell_nothing(pings: Int64, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        fit(pings)


def test_queries_nearer_to_an_edge_than_the_error_are_ambiguous() -> None:
    intended = np.array([10, 94, 95, 100, 105, 106, 150, 194, 195, 205, 206], dtype=np.int64)
    expected = [WARMUP, NORMAL, *[AMBIGUOUS] * 3, SNAPSHOT, SNAPSHOT, SNAPSHOT, AMBIGUOUS, AMBIGUOUS, NORMAL]
    assert classify(intended, [(100, 200)], 50, 5).tolist() == expected
    assert AMBIGUOUS not in classify(intended, [(100, 200)], 50)

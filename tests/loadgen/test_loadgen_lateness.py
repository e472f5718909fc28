# SPDX-License-Identifier: Apache-2.0
"""The generator's own lateness, planted by stopping it, is its own and never the server's."""

from __future__ import annotations

import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.loadgen.conftest import NEVER, Generator, QueryLog, Redis, Result, StartStub
from tests.loadgen.test_loadgen_truth import MS, assert_conserved


@dataclass
class Stop:
    """When a process was stopped, ns of CLOCK_MONOTONIC: at least from `begun` until `ending`."""

    begun: int
    ending: int

    def own_lag(self, log: QueryLog) -> NDArray[np.int64]:
        """What each query due in the stop has waited for the process at least."""
        due = (log.intended >= self.begun) & (log.intended < self.ending)
        return np.where(due, self.ending - log.intended, 0)


def stop(process: subprocess.Popen[str], after_s: float, seconds: float) -> Stop:
    """Stop a process for some time; a busy host makes the stop longer, which the record shows."""
    time.sleep(after_s)
    process.send_signal(signal.SIGSTOP)
    begun = time.monotonic_ns()
    time.sleep(seconds)
    ending = time.monotonic_ns()
    process.send_signal(signal.SIGCONT)
    return Stop(begun, ending)


def stopped_run(
    load: Generator, port: int, seconds: float, after_s: float = 1.0, **options: object
) -> tuple[Result, Stop]:
    process = load.start(port, **options)
    stopped = stop(process, after_s, seconds)
    result = load.finish(process)
    assert_conserved(result)
    return result, stopped


@pytest.mark.parametrize(
    ("value_bytes", "rate", "connections", "seconds"),
    [(262_144, 1000, 2, 0.4), (262_144, 500, 1, 0.25), (65_536, 3000, 8, 0.15)],
)
def test_a_stop_is_the_generators_lag_although_its_sockets_were_full(
    release: Generator, redis: Redis, value_bytes: int, rate: int, connections: int, seconds: float
) -> None:
    result, stopped = stopped_run(
        release,
        redis.port,
        seconds,
        rate=rate,
        queries=3 * rate,
        connections=connections,
        keys=50,
        value_bytes=value_bytes,
    )
    log = result.log
    truth = stopped.own_lag(log)
    assert (truth > 0).sum() >= 0.9 * seconds * rate
    # A hold that was under way may go on for the millisecond within which the socket is looked at.
    assert (truth - (log.sent - log.held)).max() <= 1 * MS
    assert result.end["lag_us"]["max"] * 1000 >= 0.99 * (stopped.ending - stopped.begun) - 1 * MS
    assert result.end["late"]


def test_a_stop_is_the_generators_although_the_server_kept_its_sockets_full_before(
    release: Generator, redis: Redis
) -> None:
    """Full when the generator stops, empty long before it goes on: only the server's part is a hold."""
    process = release.start(
        redis.port, rate=1000, queries=3000, connections=2, keys=50, value_bytes=262_144, drain_ms=20_000
    )
    time.sleep(1)
    redis.process.send_signal(signal.SIGSTOP)
    held_from = time.monotonic_ns()
    time.sleep(0.3)
    process.send_signal(signal.SIGSTOP)
    stopped = Stop(time.monotonic_ns(), 0)
    redis.process.send_signal(signal.SIGCONT)
    time.sleep(0.4)
    stopped.ending = time.monotonic_ns()
    process.send_signal(signal.SIGCONT)
    time.sleep(1.5)
    delay = cpu_delay(process)
    result = release.finish(process)
    assert_conserved(result)
    log = result.log
    truth = stopped.own_lag(log)
    assert (truth - (log.sent - log.held)).max() <= 1 * MS
    # And the other way round: those that waited for the server until the generator slept too were held for that time.
    due = (log.intended > held_from) & (log.intended < stopped.begun) & (log.intended + log.sent > stopped.begun)
    assert due.sum() > 10
    beyond = (log.sent - log.held)[due] - (stopped.ending - stopped.begun)
    assert np.median(beyond) < delay + 20 * MS


def cpu_delay(process: subprocess.Popen[str]) -> int:
    """How long a process has run and waited for a CPU so far, ns: what a busy host may add to its lag."""
    on_cpu, waiting, _ = Path(f"/proc/{process.pid}/schedstat").read_text().split()
    return int(on_cpu) + int(waiting)


def test_a_server_that_sleeps_is_not_the_generators_lag(release: Generator, redis: Redis) -> None:
    """The negative control: all sockets are full for most of 0.8 s, and the generator keeps its time."""
    process = release.start(
        redis.port, rate=2000, queries=6000, connections=2, keys=50, value_bytes=262_144, drain_ms=20_000
    )
    time.sleep(0.5)
    redis.process.send_signal(signal.SIGSTOP)
    begun, before = time.monotonic_ns(), cpu_delay(process)
    time.sleep(0.8)
    ending, after = time.monotonic_ns(), cpu_delay(process)
    redis.process.send_signal(signal.SIGCONT)
    result = release.finish(process)
    assert_conserved(result)
    log = result.log
    waited = (log.intended > begun) & (log.intended < ending) & (log.intended + log.sent > ending)
    assert waited.sum() > 200
    until_awake = ending - log.intended[waited]
    # Of the wait until the server went on, none is the generator's but what it spent on a CPU or waiting for one.
    assert (log.held[waited] >= until_awake - (after - before) - 5 * MS).all()
    assert np.median(log.held[waited]) > 0.5 * np.median(until_awake)


@pytest.mark.parametrize("seconds", [0.05, 0.3])
def test_replies_that_are_read_late_arrived_in_time(release: Generator, stub: StartStub, seconds: float) -> None:
    """A generator that is stopped with queries in flight reads late; the server has answered long before."""
    delay = 20 * MS
    server = stub("delay", delay)
    result, stopped = stopped_run(release, server.port, seconds, rate=2000, queries=6000, connections=200)
    log, end = result.log, result.end
    in_flight = (log.intended + log.sent < stopped.begun) & (log.intended + log.sent > stopped.begun - delay // 2)
    assert in_flight.sum() > 10
    answered = log.intended + log.completed
    replied = {(connection, turn): at for connection, turn, at in _replies(server.stop())}
    connections = int(log.header["connections"])
    truth = np.array([replied[int(i) % connections, int(i) // connections] for i in np.flatnonzero(in_flight)])
    # The stub takes its time before the write; the packet arrives after it, and before it was read.
    assert (answered[in_flight] >= truth - end["stamp_error_ns"]).all()
    assert np.median(answered[in_flight] - truth) < 5 * MS
    at_least = stopped.ending - answered[in_flight]
    assert (log.read[in_flight] >= at_least).all()
    assert end["read_delay_us"]["max"] * 1000 >= 0.5 * (stopped.ending - stopped.begun)
    assert end["unstamped"] <= 0.001 * end["completed"]
    assert end["stamp_error_ns"] < 50_000


def _replies(rows: list[tuple[int, str, int, int]]) -> list[tuple[int, int, int]]:
    """Connection, turn on it, and time of each reply."""
    turns: dict[int, int] = {}
    found = []
    for connection, _, _, replied in rows:
        turn = turns.get(connection, 0)
        turns[connection] = turn + 1
        found.append((connection, turn, replied))
    return found


@pytest.mark.parametrize("arrivals", ["constant", "poisson"])
@pytest.mark.parametrize(("stall_s", "rate"), [(0.137, 3000), (0.33, 17_000), (1.1, 3000)])
def test_a_stopped_server_shows_as_its_triangle_with_the_generators_part_apart(
    release: Generator, redis: Redis, stall_s: float, rate: int, arrivals: str
) -> None:
    """The slowest query waited for the whole stop, and the one at p99.9 for what the schedule says."""
    seconds = 5
    process = release.start(
        redis.port, rate=rate, queries=seconds * rate, connections=50, keys=10_000, value_bytes=100, arrivals=arrivals
    )
    time.sleep(1.5)
    redis.process.send_signal(signal.SIGSTOP)
    begun = time.monotonic_ns()
    time.sleep(stall_s)
    ending = time.monotonic_ns()
    redis.process.send_signal(signal.SIGCONT)
    result = release.finish(process)
    assert_conserved(result)
    log = result.log
    due = (log.intended >= begun) & (log.intended < ending)
    truth = np.where(due, ending - log.intended, 0)
    own = log.completed - (log.sent - log.held)
    for share in (0.999, 1.0):
        expected = float(np.quantile(truth, share, method="inverted_cdf"))
        found = float(np.quantile(own, share, method="inverted_cdf"))
        assert found >= 0.98 * expected
        # A query waits besides for its turn in the backlog and for a CPU; what it waited is bounded by the slowest of
        # those that came when the server had slept, which the run itself shows.
        after = (log.intended >= ending) & (log.intended < ending + 500 * MS)
        backlog = int(own[after].max())
        assert found <= 1.02 * expected + backlog


def test_a_server_that_dies_with_full_sockets_leaves_a_whole_log(load: Generator, redis: Redis) -> None:
    """Queries that were held when their connection was lost are lost or unsent, and nothing contradicts itself."""
    process = load.start(
        redis.port, rate=2000, queries=100_000, connections=3, keys=50, value_bytes=262_144, drain_ms=500
    )
    time.sleep(0.5)
    redis.process.send_signal(signal.SIGSTOP)
    time.sleep(0.5)
    redis.process.kill()
    result = load.finish(process)
    assert result.code == 1
    assert result.end["server_gone"]
    assert_conserved(result)
    log = result.log
    unsent = log.sent == NEVER
    assert unsent.sum() > 100
    assert 300 * MS < log.held[unsent].max() < 5000 * MS

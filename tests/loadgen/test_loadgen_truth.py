# SPDX-License-Identifier: Apache-2.0
"""What the generator reports against what is known to have happened."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.disturbance import Disturbance, Outcome, settle
from tests.loadgen.conftest import ERROR, IN_FLIGHT, LOST, NEVER, OK, UNSENT, Generator, Redis, Result, StartStub

MS = 1_000_000
STALL_S = 0.5
DURATION_S = 8


def assert_conserved(result: Result) -> None:
    """Both laws of docs/formats.md, from the raw records alone and then against the summary."""
    log, end = result.log, result.end
    sent = log.sent != NEVER
    count = {status: int((log.status == status).sum()) for status in range(5)}
    assert count[UNSENT] == (~sent).sum()
    assert sent.sum() == count[OK] + count[ERROR] + count[LOST] + count[IN_FLIGHT]
    assert ((log.completed != NEVER) == ((log.status == OK) | (log.status == ERROR))).all()
    assert (log.held <= log.sent)[sent].all()
    assert (np.diff(log.intended) >= 0).all()

    assert end["conserved"]
    assert end["intended"] == end["log_records"] == len(log.intended)
    assert end["sent"] == sent.sum()
    names = {"completed": OK, "errors": ERROR, "lost": LOST, "in_flight": IN_FLIGHT, "unsent": UNSENT}
    assert {name: end[name] for name in names} == {name: count[status] for name, status in names.items()}


def assert_triangle(attempt: Callable[[], tuple[Result, float, int]]) -> None:
    """A stall of S in T leaves x_p = S - (1 - p) T, to 2 %.

    A try returns its result, S in seconds, and how long its server waited for a CPU besides, ns. What the host did is
    that, and the generator's own lag: no latency is off by more than both.
    """

    def outcomes() -> list[Outcome]:
        result, stall_s, waited_ns = attempt()
        assert_conserved(result)
        assert result.end["completed"] == 10_000 * DURATION_S
        disturbance_s = result.end["lag_us"]["max"] / 1e6 + waited_ns / 1e9
        found = []
        for name, p in {"p99": 0.99, "p999": 0.999, "max": 1.0}.items():
            truth_s = stall_s - (1 - p) * DURATION_S
            error_s = abs(result.end["latency_us"][name] / 1e6 - truth_s)
            found.append(Outcome(f"{name}, s", error_s, 0.02 * truth_s, disturbance_s))
        return found

    settle(outcomes)


STALLED = {"rate": 10_000, "queries": 10_000 * DURATION_S, "connections": 50, "keys": 10_000, "value_bytes": 1024}


def test_a_stalled_stub_shows_as_its_triangle(release: Generator, stub: StartStub) -> None:
    def attempt() -> tuple[Result, float, int]:
        server = stub("pause", int(STALL_S * 1e9))
        disturbance = Disturbance(server.process.pid)
        result = release.run(server.port, **STALLED)
        return result, STALL_S, disturbance.so_far_ns()

    assert_triangle(attempt)


class Stop(threading.Thread):
    """Stops a process for STALL_S; `took_s` is how long that was in truth, as a busy host wakes nobody in time."""

    def __init__(self, process: subprocess.Popen[bytes], after_s: float) -> None:
        super().__init__()
        self._process = process
        self._after_s = after_s
        self.took_s = 0.0
        self.start()

    def run(self) -> None:
        time.sleep(self._after_s)
        began = time.monotonic()
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(STALL_S)
        self._process.send_signal(signal.SIGCONT)
        self.took_s = time.monotonic() - began


def test_a_stopped_redis_shows_as_its_triangle(release: Generator, redis: Redis) -> None:
    def attempt() -> tuple[Result, float, int]:
        disturbance = Disturbance(redis.process.pid)
        stopping = Stop(redis.process, after_s=2)
        result = release.run(redis.port, **STALLED)
        stopping.join()
        return result, stopping.took_s, disturbance.so_far_ns()

    assert_triangle(attempt)


def test_a_closed_loop_misses_the_triangle(redis: Redis) -> None:
    """The negative control: redis-benchmark waits for the stalled server, and so hardly sees it."""
    stopping = Stop(redis.process, after_s=1)
    start = time.monotonic()
    output = subprocess.run(
        ["redis-benchmark", "-p", str(redis.port), "-t", "set", "-n", "300000", "-c", "50", "--csv"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    duration = time.monotonic() - start
    stopping.join()
    (row,) = csv.DictReader(output.splitlines())
    assert float(row["max_latency_ms"]) > 400, "the server was not stopped during the benchmark"
    truth_ms = 1000 * (STALL_S - 0.01 * duration)
    assert float(row["p99_latency_ms"]) < truth_ms / 4


@pytest.mark.parametrize("delay_ms", [0, 1, 10])
def test_a_fixed_delay_is_the_latency(release: Generator, stub: StartStub, delay_ms: int) -> None:
    result = release.run(stub("delay", delay_ms * MS).port, rate=2000, queries=2000)
    assert result.code == 0
    assert_conserved(result)
    log = result.log
    assert (log.completed - log.sent >= delay_ms * MS).all()
    # The median, because a crowded host adds to some latencies but not to half of them.
    assert np.median(log.completed - log.sent) < (delay_ms + 2) * MS


@pytest.mark.parametrize(
    "options",
    [{}, {"arrivals": "poisson", "distribution": "zipf"}, {"ratio": "1:1", "insert": True}, {"seed": 7}],
    ids=["constant", "poisson", "insert", "seed"],
)
def test_every_query_is_paired_with_its_own_reply(load: Generator, stub: StartStub, options: dict[str, object]) -> None:
    """Delays of 0, 1 and 10 ms by key: a reply given to the wrong query would come too early for it."""
    server = stub("delay-by-key")
    workload = {"rate": 3000, "queries": 6000, "connections": 7, "keys": 10_000} | options
    result = load.run(server.port, **workload)
    assert result.code == 0
    assert_conserved(result)
    log = result.log
    schedule = load.schedule(**workload)
    assert (log.intended == log.header["start"] + schedule["intended_ns"]).all()
    assert ((log.operation == 1) == (schedule["operation"] == "SET")).all()

    turn = [0] * 7
    for connection, key, received, replied in server.stop():
        sequence = connection + 7 * turn[connection]
        turn[connection] += 1
        assert int(key, 16) == schedule["key"][sequence]
        delay = (0, 1 * MS, 10 * MS)[schedule["key"][sequence] % 3]
        assert replied - received >= delay
        intended, sent, completed = log.intended[sequence], log.sent[sequence], log.completed[sequence]
        assert intended <= intended + sent <= received <= replied <= intended + completed
    assert sum(turn) == 6000


def sojourn_times(arrivals: NDArray[np.int64], service: int) -> NDArray[np.int64]:
    """Lindley's recursion: the time that each spends at a single server of constant service time."""
    free, sojourn = 0, np.zeros(len(arrivals), dtype=np.int64)
    for i, arrival in enumerate(arrivals):
        free = max(free, int(arrival)) + service
        sojourn[i] = free - arrival
    return sojourn


@pytest.mark.parametrize("load_factor", [0.5, 0.8, 0.95])
def test_a_single_server_queues_as_theory_says(release: Generator, stub: StartStub, load_factor: float) -> None:
    """M/D/1, by its recursion on the very arrivals of the run, so that no sampling error remains.

    The service is long against the wakeups of an idle virtual CPU, some 0.2 ms a query, which are no queueing.
    """
    service = 6 * MS
    rate = load_factor * 1e9 / service
    quantiles = [0.1, 0.5, 0.9, 0.99]

    def attempt() -> list[Outcome]:
        server = stub("service", service)
        disturbance = Disturbance(server.process.pid)
        result = release.run(server.port, rate=rate, queries=int(4 * rate), arrivals="poisson")
        # Besides the generator's own lag, what its server waited is spread over all of its queries.
        waited = disturbance.so_far_ns() / len(result.log.intended)
        assert_conserved(result)
        theory = sojourn_times(result.log.intended, service)
        # Two that come together may be served in either order, which leaves the mean as it is.
        assert result.log.completed.mean() >= theory.mean()
        truth = np.quantile(theory, quantiles)
        errors = np.abs(np.quantile(result.log.completed, quantiles) / truth - 1)
        # A queue hands each delay on to all who wait: at load r to about 1 / (1 - r) queries.
        disturbed = (1000 * result.end["lag_us"]["p99"] + waited) / (1 - load_factor) / truth
        return [
            Outcome(f"quantile {quantile}, share", error, 0.1, own)
            for quantile, error, own in zip(quantiles, errors, disturbed, strict=True)
        ]

    settle(attempt)


def test_a_stopped_generator_flags_itself_and_not_the_server(release: Generator, redis: Redis) -> None:
    process = release.start(redis.port, rate=5000, queries=15_000)
    time.sleep(1)
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.4)
    process.send_signal(signal.SIGCONT)
    result = release.finish(process)
    assert_conserved(result)
    assert result.end["intended"] == 15_000, "the schedule went on"
    assert result.end["late"]
    assert result.end["lag_us"]["max"] > 350_000
    assert result.end["lag_us"]["p99"] > 250_000
    log = result.log
    assert np.quantile(log.completed - log.sent, 0.9) < 100 * MS


def test_a_server_that_reads_slowly_holds_queries_but_not_the_schedule(load: Generator, stub: StartStub) -> None:
    workload = {"rate": 2000, "queries": 4000, "connections": 4, "keys": 1000}
    start = time.monotonic()
    result = load.run(stub("slow", 5 * MS).port, value_bytes=65536, drain_ms=500, **workload)
    assert time.monotonic() - start < 20
    assert_conserved(result)
    end, log = result.end, result.log
    assert end["intended"] == 4000
    assert (log.intended == log.header["start"] + load.schedule(**workload)["intended_ns"]).all()
    assert end["unsent"] > 0
    assert end["held"] == (log.held > 0).sum() > 0
    assert (log.held[log.status == UNSENT] > 0).all()


def test_held_queries_are_sent_whole_once_there_is_room(load: Generator, stub: StartStub) -> None:
    """A send that was cut short goes on where it stopped: a single byte off would break the protocol."""
    server = stub("slow", 20_000)
    result = load.run(server.port, rate=1000, queries=400, connections=2, value_bytes=100_000, drain_ms=30_000)
    assert result.code == 0
    assert_conserved(result)
    assert result.end["completed"] == 400
    log, end = result.log, result.end
    assert end["held"] == (log.held > 0).sum() > 0
    # The wait for room is no lag of the generator's.
    assert end["lag_us"]["max"] == pytest.approx(log.lag.max() / 1000, abs=0.001)
    assert log.sent.max() > 2 * log.lag.max()
    keys = [int(key, 16) for _, key, _, _ in sorted(server.stop(), key=lambda row: row[0])]
    schedule = load.schedule(rate=1000, queries=400, connections=2, keys=10_000)
    by_connection = np.concatenate([schedule["key"][schedule["connection"] == c] for c in (0, 1)])
    assert keys == list(by_connection)


def test_printed_quantiles_are_those_of_the_log(load: Generator, redis: Redis) -> None:
    result = load.run(redis.port, rate=5000, queries=12_345)
    log, end = result.log, result.end

    def by_rank(values: NDArray[np.int64], p: float) -> float:
        rank = -(-len(values) * round(p * 1000) // 1000)
        return float(np.sort(values)[rank - 1] / 1000)

    for printed, values in (
        (end["latency_us"], log.completed),
        (end["lag_us"], log.lag),
        (end["read_delay_us"], log.read),
    ):
        truth = {name: by_rank(values, p) for name, p in {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1}.items()}
        assert printed == pytest.approx(truth, abs=0.0011)
    late = end["lag_us"]["p999"] > 100 or end["lag_us"]["p999"] > 0.01 * end["latency_us"]["p999"]
    assert end["late"] == late
    last_sent = (log.intended + log.sent).max() - log.header["start"]
    assert end["rate_sent"] == pytest.approx(12_345 / (last_sent / 1e9 + 1 / 5000))
    last_due = log.intended.max() - log.header["start"]
    assert end["rate_intended"] == pytest.approx(12_345 / (last_due / 1e9 + 1 / 5000))
    assert end["rate_error"] == pytest.approx(end["rate_sent"] / end["rate_intended"] - 1, abs=1e-8)


@pytest.mark.skipif(os.geteuid() != 0, reason="locking memory needs root")
def test_measuring_takes_no_page_fault(release: Generator, redis: Redis) -> None:
    result = release.run(redis.port, rate=20_000, queries=60_000, connections=50, arrivals="poisson", ratio="1:1")
    assert result.end["cost"]["minor_faults"] == 0
    assert result.end["cost"]["major_faults"] == 0


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_measuring_makes_no_system_call_but_its_own(release: Generator, redis: Redis) -> None:
    """No memory is asked for and nothing is written but the progress while queries are under way."""
    trace = release.directory / "trace"
    words = ["run", "--port", str(redis.port), "--rate", "500", "--queries", "1000", "--connections", "5"]
    words += ["--keys", "100", "--value-bytes", "100", "--log", str(release.directory / "q.bin")]
    subprocess.run(["strace", "-o", trace, release.program, *words], check=True, stdin=subprocess.DEVNULL, timeout=60)
    calls = [line.split("(")[0] for line in trace.read_text().splitlines() if "(" in line]
    first, last = calls.index("sendmsg"), len(calls) - calls[::-1].index("sendmsg")
    assert set(calls[first:last]) <= {"sendmsg", "recvmsg", "epoll_pwait2", "poll", "write"}
    assert calls[first:last].count("write") <= 3

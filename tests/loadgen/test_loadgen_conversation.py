# SPDX-License-Identifier: Apache-2.0
"""How a run is started, watched and ended, and what `fill` and `run` leave in a real server."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.loadgen.conftest import Generator, Redis, StartStub, arguments
from tests.loadgen.test_loadgen_truth import assert_conserved


def test_a_run_tells_its_start_its_progress_and_its_end(load: Generator, redis: Redis) -> None:
    result = load.run(redis.port, rate=1000, queries=2500)
    assert result.code == 0
    assert result.message == ""
    assert [event["event"] for event in result.events] == ["start", "progress", "progress", "end"]
    start, first, second, end = result.events
    assert start["start_ns"] == end["start_ns"] == result.log.header["start"]
    assert 0 < first["intended"] < second["intended"] < 2500
    assert set(first) == {"event", "t_ns", "intended", "sent", "completed", "errors"}
    assert end["schema"] == "forktail.load/2"
    assert end["rate_wanted"] == 1000
    assert end["end_ns"] > start["start_ns"] + 2.4e9


@pytest.mark.parametrize("how", ["stop", "end of file", "SIGTERM", "SIGINT"])
def test_a_run_ends_when_told(load: Generator, redis: Redis, how: str) -> None:
    process = load.start(redis.port, rate=1000, queries=100_000)
    assert process.stdin is not None
    time.sleep(0.7)
    if how == "stop":
        for part in ("go on\nst", "op\n"):
            process.stdin.write(part)
            process.stdin.flush()
            time.sleep(0.1)
    elif how == "end of file":
        process.stdin.close()
    else:
        process.send_signal(signal.Signals[how])
    result = load.finish(process, 10)
    assert result.code == 0
    assert_conserved(result)
    assert 0 < result.end["intended"] < 20_000
    assert result.end["completed"] == result.end["intended"]


def test_a_run_outlives_no_parent(load: Generator, redis: Redis) -> None:
    """Its standard input is /dev/null here, so only the parent's death tells it."""
    words = arguments(
        "run", port=redis.port, rate=100, queries=100_000, connections=1, keys=10, value_bytes=10,
        log=load.directory / "queries.bin",
    )  # fmt: skip
    program = """if True:
        import subprocess, sys
        child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        child.stdout.readline()
        print(child.pid)
    """
    parent = subprocess.run(
        [sys.executable, "-c", program, load.program, *words], capture_output=True, text=True, check=True, timeout=20
    )
    stat = Path(f"/proc/{int(parent.stdout)}/stat")
    for _ in range(100):
        # A zombie has ended; whoever adopts it may take its time to reap it.
        if not stat.exists() or stat.read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.1)
    pytest.fail("the run goes on without its parent")


def fill_pipe(writing: int) -> None:
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"x" * 65536)
    except BlockingIOError:
        os.set_blocking(writing, True)


def test_a_reader_that_stalls_does_not_stall_the_load(load: Generator, redis: Redis) -> None:
    log = load.directory / "queries.bin"
    words = arguments("run", port=redis.port, rate=1000, queries=2200, connections=5, keys=10, value_bytes=10, log=log)
    reading, writing = os.pipe()
    process = subprocess.Popen([load.program, *words], stdin=subprocess.DEVNULL, stdout=writing)
    try:
        assert b"start" in os.read(reading, 4096)
        fill_pipe(writing)
        os.close(writing)
        for _ in range(100):
            if log.exists():
                break
            time.sleep(0.1)
        assert log.exists(), "a progress line blocked the run"
        with os.fdopen(reading, "rb") as output:
            assert json.loads(output.read().splitlines()[-1].lstrip(b"x"))["completed"] == 2200
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.wait()


def test_fill_writes_every_key(load: Generator, redis: Redis) -> None:
    done = load.call(*arguments("fill", port=redis.port, keys=10_007, value_bytes=1000, value_entropy=0.25))
    assert done.returncode == 0
    end = json.loads(done.stdout.splitlines()[-1])
    assert end["event"] == "end"
    assert end["keys"] == 10_007
    assert redis.command("dbsize") == "10007"
    assert redis.command("exists", *(f"{index:08x}" for index in (0, 1, 9999, 10_006))) == "4"
    assert redis.command("exists", f"{10_007:08x}") == "0"
    value = redis.command("--no-raw", "getrange", "0000007f", "250", "-1")
    assert value == '"' + "x" * 750 + '"'
    assert redis.command("strlen", "0000007f") == "1000"
    assert redis.command("--no-raw", "getrange", "00000000", "0", "249") != redis.command(
        "--no-raw", "getrange", "00000001", "0", "249"
    )


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        ("ours", {"00000000", "00000001", "00000002"}),
        ("memtier", {"10000000", "10000001", "10000002"}),
        ("redis-benchmark", {"key:000000000000", "key:000000000001", "key:000000000002"}),
    ],
)
def test_fill_writes_the_keys_of_whoever_will_ask_for_them(
    load: Generator, redis: Redis, names: str, keys: set[str]
) -> None:
    done = load.call(*arguments("fill", port=redis.port, keys=3, value_bytes=100, key_names=names))
    assert done.returncode == 0, done.stderr
    assert set(redis.command("keys", "*").split()) == keys
    assert redis.command("strlen", max(keys)) == "100"


@pytest.mark.parametrize(("pipeline", "value_bytes"), [(1, 1), (7, 1024), (1000, 200_000)])
def test_fill_at_any_depth_and_size(load: Generator, redis: Redis, pipeline: int, value_bytes: int) -> None:
    done = load.call(
        *arguments("fill", port=redis.port, keys=1500, value_bytes=value_bytes, pipeline=pipeline, connections=3)
    )
    assert done.returncode == 0, done.stderr
    assert redis.command("dbsize") == "1500"
    assert redis.command("strlen", "000005db") == str(value_bytes)


def test_fill_ends_at_an_error_reply_and_quotes_it(load: Generator, redis: Redis) -> None:
    redis.command("config", "set", "maxmemory", "3mb")
    done = load.call(*arguments("fill", port=redis.port, keys=100_000, value_bytes=1000))
    assert done.returncode == 1
    assert "the server refused a SET: OOM command not allowed when used memory > 'maxmemory'." in done.stderr


def test_run_overwrites_the_filled_keys_or_inserts_new_ones(load: Generator, redis: Redis) -> None:
    load.call(*arguments("fill", port=redis.port, keys=1000, value_bytes=100))
    load.run(redis.port, keys=1000, queries=2000, rate=4000)
    assert redis.command("dbsize") == "1000"
    load.run(redis.port, keys=1000, queries=2000, rate=4000, insert=True)
    assert redis.command("dbsize") == "3000"


def test_a_get_that_finds_nothing_is_a_miss(load: Generator, redis: Redis) -> None:
    missed = load.run(redis.port, keys=1000, ratio="0:1")
    assert missed.end["completed"] == missed.end["misses"] == missed.log.miss.sum() == 1000
    load.call(*arguments("fill", port=redis.port, keys=1000, value_bytes=3000))
    found = load.run(redis.port, keys=1000, ratio="0:1")
    assert found.end["completed"] == 1000
    assert found.end["misses"] == found.log.miss.sum() == 0


def test_many_connections(load: Generator, redis: Redis) -> None:
    result = load.run(redis.port, connections=500, rate=2000, queries=2000)
    assert result.end["completed"] == 2000
    assert_conserved(result)


def test_it_runs_over_ipv6(load: Generator, redis: Redis) -> None:
    if redis.command("config", "set", "bind", "127.0.0.1 ::1") != "OK":
        pytest.skip("this host has no IPv6 loopback")
    assert load.run(redis.port, host="::1").end["completed"] == 1000


def test_the_log_appears_only_when_whole(load: Generator, redis: Redis) -> None:
    process = load.start(redis.port, rate=100, queries=10_000)
    time.sleep(0.7)
    log = load.directory / "queries.bin"
    assert not log.exists()
    assert log.with_name("queries.bin.tmp").exists()
    process.send_signal(signal.SIGTERM)
    result = load.finish(process)
    assert not log.with_name("queries.bin.tmp").exists()
    assert log.stat().st_size == 64 + 32 * result.end["intended"]


def test_idle_round_trips_come_before_the_load_and_count_nowhere(load: Generator, stub: StartStub) -> None:
    delay = 2_000_000
    server = stub("delay", delay)
    result = load.run(server.port, rate=1000, queries=500, connections=5, idle=20)
    assert result.code == 0
    assert result.end["intended"] == result.end["completed"] == 500
    assert result.end["idle_us"]["p50"] >= delay / 1000
    assert len(server.stop()) == 520
    without = load.run(stub("delay", delay).port, rate=1000, queries=100)
    assert without.end["idle_us"]["p50"] is None


def test_a_server_that_does_not_answer_before_the_load_ends_the_run(load: Generator) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        result = load.run(silent.getsockname()[1], connections=1, idle=3)
    assert result.code == 3
    assert result.message == "forktail-load: the server did not answer one query within 5 s before the load\n"
    assert not list(load.directory.glob("queries.bin*"))

# SPDX-License-Identifier: Apache-2.0
"""Servers that misbehave: counted and reported, never a hang and never a crash."""

from __future__ import annotations

import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.loadgen.conftest import ERROR, IN_FLIGHT, LOST, NEVER, OK, UNSENT, Generator, Redis, StartStub
from tests.loadgen.test_loadgen_truth import assert_conserved


@pytest.mark.parametrize(("mode", "code"), [("error", "ERR"), ("loading", "LOADING")])
def test_error_replies_are_counted_by_their_first_word(load: Generator, stub: StartStub, mode: str, code: str) -> None:
    result = load.run(stub(mode, after=300).port, rate=2000, queries=1000)
    assert result.code == 0
    assert_conserved(result)
    assert result.end["completed"] == 300
    assert result.end["errors"] == 700
    assert result.end["errors_by_code"] == {code: 700}
    assert not result.end["server_gone"]
    assert (result.log.completed[result.log.status == ERROR] != NEVER).all()


def test_a_real_server_out_of_memory_is_an_error_and_no_latency(load: Generator, redis: Redis) -> None:
    redis.command("config", "set", "maxmemory", "1")
    result = load.run(redis.port, rate=2000, queries=500)
    assert result.code == 0
    assert result.end["errors_by_code"] == {"OOM": 500}
    assert result.end["latency_us"] == {"p50": None, "p99": None, "p999": None, "max": None}


def test_connections_closed_in_the_middle_of_a_reply(load: Generator, stub: StartStub) -> None:
    result = load.run(stub("close", after=100).port, rate=1000, queries=1000)
    assert result.code == 1
    assert "closed 10 of 10 connections" in result.message
    assert_conserved(result)
    end = result.end
    assert end["server_gone"]
    assert end["completed"] == 100
    assert end["lost"] >= 10
    assert end["intended"] < 1000, "a run without a server ends early"


def test_what_is_not_resp_closes_the_connection(load: Generator, stub: StartStub) -> None:
    result = load.run(stub("garbage", after=100).port, rate=1000, queries=1000)
    assert result.code == 1
    assert_conserved(result)
    assert result.end["errors_by_code"] == {"invalid": 10}
    assert result.end["completed"] == 100


def test_a_silent_server_leaves_queries_in_flight(load: Generator, stub: StartStub) -> None:
    start = time.monotonic()
    result = load.run(stub("silent", after=100).port, rate=2000, queries=1000, drain_ms=300)
    assert time.monotonic() - start < 10
    assert result.code == 0
    assert_conserved(result)
    assert result.end["completed"] == 100
    assert result.end["in_flight"] == 900
    assert (result.log.status[-500:] == IN_FLIGHT).all()


def test_a_server_killed_while_it_is_loaded(load: Generator, redis: Redis) -> None:
    process = load.start(redis.port, rate=5000, queries=50_000)
    time.sleep(1)
    redis.process.send_signal(signal.SIGSTOP)
    time.sleep(0.2)
    redis.process.kill()
    result = load.finish(process)
    assert result.code == 1
    assert_conserved(result)
    assert result.end["server_gone"]
    assert result.end["lost"] > 100
    assert result.end["completed"] > 1000


def test_one_lost_connection_leaves_the_others_at_work(load: Generator, redis: Redis) -> None:
    process = load.start(redis.port, rate=2000, queries=6000)
    time.sleep(1)
    victim = next(line for line in redis.command("client", "list").splitlines() if "cmd=set" in line)
    redis.command("client", "kill", "id", victim.split()[0].removeprefix("id="))
    result = load.finish(process)
    assert result.code == 0
    assert_conserved(result)
    log, end = result.log, result.end
    assert end["intended"] == 6000
    assert not end["server_gone"]
    (connection,) = set(log.connection[log.status == UNSENT])
    after = log.status[log.connection == connection]
    assert set(log.status[log.connection != connection]) == {OK}
    assert end["unsent"] > 100
    assert sorted(after, key=[OK, LOST, UNSENT].index) == list(after), "answered, then lost, then never sent"


@pytest.mark.parametrize(("clients", "code"), [(1, 1), (6, 0)])
def test_a_refusal_at_the_door_is_quoted(load: Generator, redis: Redis, clients: int, code: int) -> None:
    redis.command("config", "set", "maxclients", str(clients))
    with socket.create_connection(("127.0.0.1", redis.port)):
        result = load.run(redis.port, rate=1000, queries=1000)
    assert result.code == code
    assert f"closed {11 - clients} of 10 connections" in result.message
    assert "its last error: ERR max number of clients reached" in result.message
    assert_conserved(result)


@contextmanager
def answering(first: bytes) -> Iterator[int]:
    """A server that greets each connection with these bytes and then resets it."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:

        def serve() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                client.sendall(first)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                client.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.parametrize("first", [b"", b"+OK\r\n", b"\0\xff\n", b"$9999999999\r\n", b"*1\r\n"])
def test_replies_to_nothing_and_resets(load: Generator, first: bytes) -> None:
    with answering(first) as port:
        result = load.run(port, rate=1000, queries=100, drain_ms=300)
    assert result.code == 1
    assert result.end["server_gone"]
    assert_conserved(result)


def test_error_codes_stay_words_of_json_and_few(load: Generator) -> None:
    """Forty codes with quotes and control characters in them: a table that grew, or JSON that broke, would show."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            with client, client.makefile("rb") as requests:
                for number in range(40):
                    for _ in range(7):
                        requests.readline()
                    client.sendall(b'-"%d\\\x01\xff oh\r\n' % number)

        thread = threading.Thread(target=serve)
        thread.start()
        result = load.run(server.getsockname()[1], rate=500, queries=40, connections=1, value_bytes=3, value_entropy=0)
        thread.join()
    assert result.end["errors"] == 40
    codes = result.end["errors_by_code"]
    assert codes["_0___"] == 1
    assert len(codes) == 16
    assert sum(codes.values()) == 40
    assert codes["other"] == 25

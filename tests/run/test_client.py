# SPDX-License-Identifier: Apache-2.0
"""A load from another host: a `forktail client` whose monotonic clock is in a time namespace, days ahead of ours."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.run.conftest import Command, Start

import forktail
from forktail.analysis.clock import read_client
from forktail.analysis.querylog import read_query_log
from forktail.measure.clock import EDGE_PINGS, round_trip_ns
from forktail.measure.server import free_port

_AHEAD_S = 500_000
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or subprocess.run(["unshare", "-T", "--monotonic", "1", "true"], check=False).returncode != 0,
    reason="attaching eBPF probes needs root, and a clock of its own needs time namespaces",
)


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def client(start: Start, port: int, tmp_path: Path) -> Iterator[Command]:
    before = ["unshare", "-T", "--monotonic", str(_AHEAD_S)]
    (tmp_path / "of-client").mkdir()
    address = ("--bind", "127.0.0.1", "--port", str(port))
    command = start("client", *address, before=before, TMPDIR=str(tmp_path / "of-client"))

    def listens() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    command.wait_for(listens)
    yield command
    command.process.send_signal(signal.SIGINT)
    assert command.process.wait(10) == 130


def _run(start: Start, tiny: Path, out: Path, port: int) -> Command:
    return start("run", tiny, "--out", out, "--json", "--set", f"load.host=127.0.0.1:{port}")


def _wait_for_load(command: Command) -> int:
    """Wait until the client loads the server; returns the pid of its forktail-load."""
    command.wait_for(lambda: [*(command.directory / "of-client").rglob("queries.bin*")])
    return command.pid_of("forktail-load")


def test_queries_are_classified_by_the_clock_of_the_server(
    start: Start, client: Command, port: int, tiny: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    code, output, errors = _run(start, tiny, out, port).finish()
    # 1: another load on this machine may make the generator late, or normal queries slow.
    assert code in (0, 1), errors
    summary = json.loads(output)
    told, clock = read_client(out / "client.json")
    assert told["host"] == summary["load"]["host"]["host"] == os.uname().nodename
    assert clock.pings >= 2 * EDGE_PINGS
    log = read_query_log(out / "queries.bin")
    marks = json.loads((out / "run.json").read_text())["marks"]
    # Both clocks are one but for the namespace, so what the pings say can be checked to the nanosecond.
    truth = log.intended_ns - _AHEAD_S * 10**9
    assert abs(clock.on_server(log.intended_ns) - truth).max() <= clock.error_ns
    # The start is translated by the quickest ping before the load alone.
    pings = json.loads((out / "client.json").read_text())["pings"]
    assert abs(marks["load_start_ns"] - truth[0]) <= min(map(round_trip_ns, pings[:EDGE_PINGS])) / 2 + 1
    assert clock.error_ns < 20e6
    window = summary["window"]
    within = (truth >= window["start_ns"]) & (truth <= window["end_ns"])
    queries = summary["queries"]
    assert abs(queries["snapshot"]["count"] - int(within.sum())) <= queries["ambiguous"]["count"]
    assert sum(queries[name]["count"] for name in ("normal", "armed", "snapshot", "warmup", "ambiguous")) == len(log)
    assert "Load from" in (out / "report.html").read_text()
    again_code, again, errors = start("report", out, "--json").finish()
    assert again_code == code, errors
    assert json.loads(again) == summary
    (out / "client.json").unlink()
    code, _, errors = start("report", out).finish()
    assert (code, "client.json is missing" in errors) == (2, True)


def test_a_client_that_is_killed_fails_the_run(
    start: Start, client: Command, port: int, tiny: Path, tmp_path: Path
) -> None:
    command = _run(start, tiny, tmp_path / "out", port)
    os.kill(_wait_for_load(command), signal.SIGKILL)
    code, _, errors = command.finish()
    assert code == 1, errors
    assert "forktail-load" in errors
    assert "Traceback" not in errors
    assert not (tmp_path / "out").exists()


def test_a_harness_that_is_killed_ends_the_load(
    start: Start, client: Command, port: int, tiny: Path, tmp_path: Path
) -> None:
    command = _run(start, tiny, tmp_path / "out", port)
    _wait_for_load(command)
    command.process.kill()
    command.process.wait()
    left = set(client.orphans(20).values())
    assert left <= {"forktail"}, left
    # And the next run is served.
    code, _, errors = _run(start, tiny, tmp_path / "again", port).finish()
    assert code in (0, 1), errors
    assert (tmp_path / "again" / "run.json").exists()


def test_one_load_at_a_time(start: Start, client: Command, port: int, tiny: Path, tmp_path: Path) -> None:
    first = _run(start, tiny, tmp_path / "first", port)
    _wait_for_load(first)
    code, _, errors = _run(start, tiny, tmp_path / "second", port).finish()
    assert code == 3, errors
    assert "keeps another run's load" in errors
    assert first.finish()[0] in (0, 1)


def test_nobody_there(start: Start, port: int, tiny: Path, tmp_path: Path) -> None:
    code, _, errors = _run(start, tiny, tmp_path / "out", port).finish()
    assert code == 3
    assert f"load.host 127.0.0.1:{port} does not answer (Connection refused): start `forktail client` there." in errors
    assert not [*tmp_path.glob("out*")]


def test_no_such_port(start: Start, tiny: Path, tmp_path: Path) -> None:
    code, _, errors = _run(start, tiny, tmp_path / "out", 99999).finish()
    assert code == 2
    assert "load.host 127.0.0.1:99999 has no port between 1 and 65535" in errors


@pytest.mark.parametrize("said", [b"SSH-2.0-OpenSSH_9.2\r\n", b"[1, 2]\n", b"", None])
def test_something_else_that_listens(start: Start, port: int, tiny: Path, tmp_path: Path, said: bytes | None) -> None:
    with socket.create_server(("127.0.0.1", port)) as other:
        command = _run(start, tiny, tmp_path / "out", port)
        connection, _ = other.accept()
        with connection:
            if said is not None:
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
            code, _, errors = command.finish()
    assert code == 3, errors
    assert f"load.host 127.0.0.1:{port} is something else than `forktail client`" in errors
    assert "Traceback" not in errors


def test_an_address_of_another_host(start: Start) -> None:
    code, _, errors = start("client", "--bind", "192.0.2.1").finish()
    assert code == 3
    assert "Nobody can listen on 192.0.2.1:7401" in errors


@pytest.mark.parametrize(
    "asked",
    [
        b"nonsense",
        b"[]",
        b'{"ask": "load", "port": 6379, "options": ["--host=192.0.2.1"]}',
        b'{"ask": "load", "port": 6379, "options": ["--log=/etc/passwd"]}',
        b'{"ask": "load", "port": 6379, "options": ["--rate=1 --log=x"]}',
        b'{"ask": "load", "port": "6379 --log=x", "options": []}',
        b'{"ask": "load", "options": []}',
    ],
)
def test_a_client_does_nothing_else(client: Command, port: int, asked: bytes) -> None:
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rwb") as stream:
        stream.write(asked + b"\n")
        stream.flush()
        answer = json.loads(stream.readline())
    assert answer["event"] == "refused"
    assert "does not understand what it is asked" in answer["why"]


def test_another_forktail_is_refused(start: Start, port: int, tiny: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", port)) as other:
        command = _run(start, tiny, tmp_path / "out", port)
        connection, _ = other.accept()
        with connection:
            connection.sendall(b'{"schema": "forktail.client/1", "forktail": "0.0.1"}\n')
            code, _, errors = command.finish()
    assert code == 2
    assert f"runs forktail 0.0.1, and this host {forktail.__version__}: install the same on both." in errors


def test_a_closed_loop_stays_on_the_server(start: Start, port: int, tiny: Path, tmp_path: Path) -> None:
    command = start(
        *("run", tiny, "--out", tmp_path / "out", "--set", "load.generator=redis-benchmark"),
        *("--set", f"load.host=127.0.0.1:{port}"),
    )
    code, _, errors = command.finish()
    assert code == 2
    assert "load.host is set, but redis-benchmark sends from the server's host" in errors

# SPDX-License-Identifier: Apache-2.0
"""A real server: BGSAVE beside what Redis says of itself."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from tests.disturbance import Disturbance, Outcome, settle
from tests.probe.conftest import CHILD_EXIT, FORK, RENAME, WINDOW_END, StartProbe, assert_conserved

KEYS = 100_000


class Server:
    def __init__(self, directory: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = ["redis-server", "--port", str(port), "--save", "", "--dir", str(directory)]
        command += ["--enable-debug-command", "local"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        self.client = redis.Redis(port=port, retry_on_error=[redis.exceptions.BusyLoadingError])
        deadline = time.monotonic() + 10
        while True:
            try:
                self.client.ping()
                break
            except redis.exceptions.ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        self.client.execute_command("DEBUG", "POPULATE", KEYS, "key", 1024)  # type: ignore[no-untyped-call]

    def bgsave(self) -> None:
        """BGSAVE, once the server has reaped the child before: its death, where a window ends, is earlier."""
        deadline = time.monotonic() + 10
        while self.client.info("persistence")["rdb_bgsave_in_progress"]:
            assert time.monotonic() < deadline, "the server never reaped its child"
            time.sleep(0.02)
        self.client.bgsave()

    def close(self) -> None:
        self.client.close()
        self.process.kill()
        self.process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    if not shutil.which("redis-server"):
        pytest.skip("redis-server is not installed")
    started = Server(tmp_path)
    yield started
    started.close()


def test_bgsave_of_100_mb(server: Server, probe: StartProbe) -> None:
    """Redis's own clock reads can be preempted, which the fork itself does not show."""
    follower = probe(server.process.pid)
    windows = 0

    def attempt() -> list[Outcome]:
        nonlocal windows
        follower.arm()
        disturbance = Disturbance(server.process.pid)
        server.bgsave()
        fork = follower.expect("fork")
        end = follower.expect("window_end")
        windows += 1
        assert fork["child"] == end["child"]
        assert fork["start_ns"] + fork["duration_ns"] < end["t_ns"]
        waited_us = disturbance.so_far_ns() / 1000
        said_us = int(server.client.info("stats")["latest_fork_usec"])
        return [Outcome("fork, us", abs(fork["duration_ns"] / 1000 - said_us), said_us / 10, waited_us)]

    settle(attempt)
    trailer = follower.stop()
    log = follower.log()
    assert_conserved(trailer, log)
    assert len(log.of(FORK)) == len(log.of(CHILD_EXIT)) == len(log.of(WINDOW_END)) == windows
    if follower.header["probes"]["rename"]["probe"]:
        # temp-PID.rdb becomes dump.rdb just before the child ends.
        assert list(log.of(RENAME)["tgid"]) == list(log.of(CHILD_EXIT)["tgid"])
        assert (log.of(RENAME)["start"] < log.of(CHILD_EXIT)["start"]).all()

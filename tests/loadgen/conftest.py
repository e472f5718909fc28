# SPDX-License-Identifier: Apache-2.0
"""The generator, built and run against servers that are real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

SOURCES = Path(__file__).parents[2] / "harness" / "loadgen"
NEVER = (1 << 44) - 1
GET, SET = 0, 1
OK, ERROR, LOST, IN_FLIGHT, UNSENT = range(5)

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("header_bytes", "<u4"),
        ("record_bytes", "<u4"),
        ("connections", "<u4"),
        ("records", "<u8"),
        ("start", "<u8"),
        ("seed", "<u8"),
        ("rate", "<f8"),
        ("zero", "<u8"),
    ]
)


@dataclass
class QueryLog:
    """`queries.bin`, one array per field; times are ns, those after `intended` are relative to it."""

    header: Any
    intended: NDArray[np.int64]
    sent: NDArray[np.int64]
    connection: NDArray[np.int64]
    completed: NDArray[np.int64]
    operation: NDArray[np.int64]
    status: NDArray[np.int64]
    miss: NDArray[np.int64]
    stamped: NDArray[np.int64]
    held: NDArray[np.int64]
    """The part of `sent` in which the socket was full."""
    read: NDArray[np.int64]
    """From the completion to the reading."""

    @property
    def lag(self) -> NDArray[np.int64]:
        """The generator's own part of `sent`, of the queries that were sent."""
        own: NDArray[np.int64] = (self.sent - self.held)[self.sent != NEVER]
        return own

    @classmethod
    def read_from(cls, path: Path) -> QueryLog:
        data = path.read_bytes()
        header = np.frombuffer(data[:64], HEADER)[0]
        words = np.frombuffer(data[64:], "<u8").reshape(-1, 4).astype(np.uint64)

        def bits(word: int, low: int, count: int) -> NDArray[np.int64]:
            field = words[:, word] >> np.uint64(low) & np.uint64((1 << count) - 1)
            return field.astype(np.int64)

        assert header["magic"] == b"FTQLOG"
        assert (header["version"], header["header_bytes"], header["record_bytes"]) == (2, 64, 32)
        assert header["records"] == len(words)
        assert not bits(3, 58, 6).any()
        return cls(
            header=header,
            intended=words[:, 0].astype(np.int64),
            sent=bits(1, 0, 44),
            connection=np.arange(len(words)) % int(header["connections"]),
            completed=bits(2, 0, 44),
            operation=bits(3, 48, 4),
            status=bits(3, 52, 4),
            miss=bits(3, 56, 1),
            stamped=bits(3, 57, 1),
            held=bits(1, 44, 20) | bits(3, 0, 24) << 20,
            read=bits(2, 44, 20) | bits(3, 24, 24) << 20,
        )


@dataclass
class Result:
    """What a run of the generator left behind."""

    code: int
    events: list[dict[str, Any]]
    message: str
    log_path: Path

    @property
    def end(self) -> dict[str, Any]:
        assert self.events, self.message
        assert self.events[-1]["event"] == "end"
        return self.events[-1]

    @property
    def log(self) -> QueryLog:
        return QueryLog.read_from(self.log_path)


def arguments(command: str, **options: object) -> list[str]:
    """`spin_us=0` becomes `--spin-us 0`, and `insert=True` becomes `--insert`."""
    words = [command]
    for name, value in options.items():
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(str(value))
    return words


@dataclass
class Generator:
    """One build of forktail-load."""

    program: Path
    directory: Path

    def call(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(
            [self.program, *words], capture_output=True, text=True, timeout=60, check=False, **options
        )

    def start(self, port: int, **options: object) -> subprocess.Popen[str]:
        """A run under way: a small one unless the options say otherwise."""
        chosen: dict[str, object] = {
            "port": port,
            "rate": 1000,
            "queries": 1000,
            "connections": 10,
            "keys": 10_000,
            "value_bytes": 100,
            "log": self.directory / "queries.bin",
        } | options
        return subprocess.Popen(
            [self.program, *arguments("run", **chosen)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self, process: subprocess.Popen[str], seconds: float = 40) -> Result:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        # Its standard input stays open, because the end of it would end the run.
        try:
            process.wait(seconds)
        finally:
            process.kill()
        output, message = process.stdout.read(), process.stderr.read()
        for stream in (process.stdin, process.stdout, process.stderr):
            stream.close()
        events = [json.loads(line) for line in output.splitlines()]
        return Result(process.returncode, events, message, self.directory / "queries.bin")

    def run(self, port: int, **options: object) -> Result:
        return self.finish(self.start(port, **options))

    def schedule(self, **options: object) -> dict[str, NDArray[Any]]:
        """The columns of `forktail-load schedule`."""
        done = self.call(*arguments("schedule", **options))
        assert done.returncode == 0, done.stderr
        rows = [line.split("\t") for line in done.stdout.splitlines()]
        columns = dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True))
        return {
            "intended_ns": np.array(columns["intended_ns"], dtype=np.int64),
            "connection": np.array(columns["connection"], dtype=np.int64),
            "operation": np.array(columns["operation"]),
            "key": np.array([int(key, 16) for key in columns["key"]]),
        }


def build(directory: Path, *options: str) -> Path:
    subprocess.run(["cmake", "-S", SOURCES, "-B", directory, *options], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", directory, "--parallel", "2"], check=True, capture_output=True)
    return directory / "forktail-load"


@pytest.fixture(scope="session")
def release_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("FORKTAIL_LOAD")
    return Path(given) if given else build(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="session")
def sanitized_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("FORKTAIL_LOAD_SANITIZED")
    return Path(given) if given else build(tmp_path_factory.mktemp("sanitized"), "-DFORKTAIL_SANITIZE=ON")


@pytest.fixture
def release(release_program: Path, tmp_path: Path) -> Generator:
    """The build that measures: for what depends on time."""
    return Generator(release_program, tmp_path)


@pytest.fixture
def load(sanitized_program: Path, tmp_path: Path) -> Generator:
    """The build that stops at any memory error or undefined behaviour: for all else."""
    return Generator(sanitized_program, tmp_path)


@dataclass
class Stub:
    """A stub server under way (stub_server.c)."""

    process: subprocess.Popen[str]
    port: int
    log_path: Path

    def stop(self) -> list[tuple[int, str, int, int]]:
        """Ends it; returns connection, key, received and replied (0: never) of each request."""
        self.process.terminate()
        assert self.process.wait(10) == 0
        rows = (line.split() for line in self.log_path.read_text().splitlines())
        return [(int(row[0]), row[1], int(row[2]), int(row[3])) for row in rows]


StartStub = Callable[..., Stub]


@pytest.fixture(scope="session")
def stub_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("stub") / "stub_server"
    source = Path(__file__).with_name("stub_server.c")
    subprocess.run(["cc", "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-o", program, source], check=True)
    return program


@pytest.fixture
def stub(stub_program: Path, tmp_path: Path) -> Iterator[StartStub]:
    """Starts stub servers: `stub("delay", 1_000_000)`; hostile modes begin `after` that many requests."""
    started: list[Stub] = []

    def start(mode: str, argument_ns: int = 0, after: int = 0) -> Stub:
        log = tmp_path / f"stub{len(started)}.log"
        process = subprocess.Popen(
            [stub_program, mode, str(argument_ns), str(after), log], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        with process.stdout as output:
            started.append(Stub(process, int(output.readline()), log))
        return started[-1]

    yield start
    for server in started:
        server.process.kill()
        server.process.wait()


@dataclass
class Redis:
    """A real redis-server under way."""

    process: subprocess.Popen[bytes]
    port: int

    def command(self, *words: str) -> str:
        done = subprocess.run(
            ["redis-cli", "-p", str(self.port), *words], capture_output=True, text=True, check=True, timeout=10
        )
        return done.stdout.strip()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    port = free_port()
    settings = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)]
    process = subprocess.Popen(["redis-server", *settings], stdout=subprocess.DEVNULL)
    for _ in range(100):
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    yield Redis(process, port)
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait()

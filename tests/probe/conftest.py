# SPDX-License-Identifier: Apache-2.0
"""The probe, built and run on processes that are real."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from numpy.typing import NDArray

SOURCES = Path(__file__).parents[2] / "bpf"
SNAPSHOTTER = Path(__file__).parent / "targets" / "snapshotter.c"
PAGE = 4096
PATIENCE_S = 30.0

FORK, PAGE_TABLE_COPY, INTERRUPTION, FAULT, RUN_QUEUE, CHILD_EXIT, WINDOW_END, RENAME = range(1, 9)
FORK_UNMEASURED, BLOCKED = 10, 11
WAITING_FOR_IO = 1
PRESENT, PRESENCE_KNOWN = 1, 2
WAKING, PREEMPTED = 0, 1

HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("version", "<u4"),
        ("header_bytes", "<u4"),
        ("record_bytes", "<u4"),
        ("tgid", "<u4"),
        ("records", "<u8"),
        ("attach_ns", "<u8"),
        ("zero", "<u8", 3),
    ]
)
RECORD = np.dtype(
    [
        ("start", "<u8"),
        ("duration", "<u8"),
        ("context", "<u8"),
        ("aux", "<u8"),
        ("sequence", "<u4"),
        ("tgid", "<u4"),
        ("tid", "<u4"),
        ("cpu", "<u2"),
        ("kind", "<u2"),
    ]
)


@dataclass
class EventLog:
    """`events.bin`: its header and its records, in the order of completion."""

    header: Any
    records: NDArray[Any]

    @classmethod
    def read(cls, path: Path) -> EventLog:
        data = path.read_bytes()
        return cls(np.frombuffer(data[:64], HEADER)[0], np.frombuffer(data[64:], RECORD))

    def of(self, kind: int) -> NDArray[Any]:
        found: NDArray[Any] = self.records[self.records["kind"] == kind]
        return found

    def faults_in(self, first_page: int, pages: int) -> NDArray[Any]:
        faults = self.of(FAULT)
        inside = (faults["context"] >= first_page) & (faults["context"] < first_page + pages * PAGE)
        found: NDArray[Any] = faults[inside]
        return found


class Lines:
    """The lines of a pipe, each awaited no longer than it may take."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self.descriptor = process.stdout.fileno()
        self.pending = b""

    def next(self, patience: float = PATIENCE_S) -> str:
        deadline = time.monotonic() + patience
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.descriptor], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "no line came in time"
            data = os.read(self.descriptor, 65536)
            assert data, "the process closed its output"
            self.pending += data
        line, self.pending = self.pending.split(b"\n", 1)
        return line.decode()


def tell(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line.encode() + b"\n")
    process.stdin.flush()


@dataclass
class Answer:
    """What the snapshotter did, by its own CLOCK_MONOTONIC, and the number that goes with it."""

    before: int
    after: int
    value: int


class Snapshotter:
    """A process that forks and writes on command."""

    def __init__(self, program: Path, mib: int) -> None:
        command: list[str | Path] = [program, str(mib)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=program.parent)
        self.lines = Lines(self.process)
        self.memory = self._answer().value
        self.pid = self.process.pid

    def _answer(self) -> Answer:
        return Answer(*map(int, self.lines.next().split()))

    def ask(self, command: str) -> Answer:
        tell(self.process, command)
        return self._answer()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


class Probe:
    """forktail-probe, following one process."""

    def __init__(self, program: Path, pid: int, events: Path, *options: str) -> None:
        self.events = events
        command: list[str | Path] = [program, "--pid", str(pid), "--events", events, *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.lines = Lines(self.process)
        self.header: dict[str, Any] = self.expect("ready")["header"]

    def expect(self, event: str) -> dict[str, Any]:
        line: dict[str, Any] = json.loads(self.lines.next())
        assert line["event"] == event, line
        return line

    def await_event(self, event: str) -> dict[str, Any]:
        """Also across what is told of other forks."""
        line: dict[str, Any] = {"event": None}
        while line["event"] != event:
            line = json.loads(self.lines.next())
        return line

    def arm(self) -> int:
        tell(self.process, "arm")
        armed: int = self.await_event("armed")["t_ns"]
        return armed

    def end(self, code: int = 0) -> dict[str, Any]:
        """Wait for the trailer and the exit, whatever brought them about."""
        trailer: dict[str, Any] = self.await_event("end")["trailer"]
        assert self.process.wait(PATIENCE_S) == code
        return trailer

    def stop(self, code: int = 0) -> dict[str, Any]:
        tell(self.process, "stop")
        return self.end(code)

    def log(self) -> EventLog:
        return EventLog.read(self.events)

    def errors(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


class StartProbe(Protocol):
    def __call__(self, pid: int, *options: str) -> Probe: ...


class StartSnapshotter(Protocol):
    def __call__(self, mib: int) -> Snapshotter: ...


def _build(directory: Path, *options: str) -> Path:
    subprocess.run(["cmake", "-S", SOURCES, "-B", directory, *options], check=True, capture_output=True)
    subprocess.run(["cmake", "--build", directory, "--parallel", "2"], check=True, capture_output=True)
    return directory / "forktail-probe"


@pytest.fixture(scope="session")
def plain_probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("FORKTAIL_PROBE")
    return Path(given) if given else _build(tmp_path_factory.mktemp("probe"))


@pytest.fixture(scope="session")
def sanitized_probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    given = os.environ.get("FORKTAIL_PROBE_SANITIZED")
    return Path(given) if given else _build(tmp_path_factory.mktemp("sanitized"), "-DFORKTAIL_SANITIZE=ON")


@pytest.fixture(params=["plain", "sanitized"])
def either_probe(request: pytest.FixtureRequest) -> Path:
    """Each build in turn: for what takes other paths through the loader."""
    program: Path = request.getfixturevalue(f"{request.param}_probe")
    return program


@pytest.fixture(scope="session")
def bpf_works(plain_probe: Path) -> None:
    """What attaches needs root, BTF and a kernel that lets it."""
    tried = subprocess.run([plain_probe, "--dry-run"], capture_output=True, text=True, timeout=PATIENCE_S)
    if tried.returncode == 3:
        pytest.skip(f"BPF is not permitted here: {tried.stderr.strip()}")
    assert tried.returncode == 0, tried.stderr


@pytest.fixture(scope="session")
def snapshotter_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("targets") / "snapshotter"
    subprocess.run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread", SNAPSHOTTER, "-o", program], check=True)
    return program


@pytest.fixture
def snapshotter(snapshotter_program: Path) -> Iterator[StartSnapshotter]:
    started: list[Snapshotter] = []

    def start(mib: int) -> Snapshotter:
        started.append(Snapshotter(snapshotter_program, mib))
        return started[-1]

    yield start
    for each in started:
        each.close()


def _starter(program: Path, directory: Path) -> Iterator[StartProbe]:
    started: list[Probe] = []

    def start(pid: int, *options: str) -> Probe:
        started.append(Probe(program, pid, directory / f"events-{len(started)}.bin", *options))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture
def probe(request: pytest.FixtureRequest, plain_probe: Path, tmp_path: Path) -> Iterator[StartProbe]:
    request.getfixturevalue("bpf_works")
    yield from _starter(plain_probe, tmp_path)


@pytest.fixture
def any_probe(request: pytest.FixtureRequest, either_probe: Path, tmp_path: Path) -> Iterator[StartProbe]:
    request.getfixturevalue("bpf_works")
    yield from _starter(either_probe, tmp_path)


def assert_conserved(trailer: dict[str, Any], log: EventLog) -> None:
    """What the programs saw is what was emitted, dropped or suppressed; what was emitted is in the log."""
    kinds = trailer["by_kind"].values()
    for counts in (trailer["events"], *kinds):
        assert counts["seen"] == counts["emitted"] + counts["dropped"] + counts["suppressed"]
    for name, total in trailer["events"].items():
        assert total == sum(counts[name] for counts in kinds)
    assert trailer["records"] == trailer["events"]["emitted"] == len(log.records) == int(log.header["records"])
    for number, counts in enumerate(kinds, start=1):
        assert len(log.of(number)) == counts["emitted"]
    missing = 0
    for cpu, following in enumerate(trailer["next_sequence"]):
        sequence = np.sort(log.records["sequence"][log.records["cpu"] == cpu])
        assert len(np.unique(sequence)) == len(sequence)
        assert not len(sequence) or sequence[-1] < following
        missing += following - len(sequence)
    assert missing == trailer["events"]["dropped"]

# SPDX-License-Identifier: Apache-2.0
"""The load generators of others: closed loops, driven and asked for what they can tell (docs/formats.md).

A closed loop sends a connection's next query when the reply to its last one has come. While the server stalls it sends
nothing, so that a stall costs it one slow query a connection instead of all those that were due (coordinated omission).
"""

from __future__ import annotations

import os
import re
import resource
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forktail import rundir
from forktail.errors import BadInput, EnvironmentLacks, RunFailed
from forktail.measure.installed import ask_version, find_installed
from forktail.measure.program import Program
from forktail.measure.server import Server
from forktail.workload import Workload

REALTIME_PRIORITY = 10
_ENDS_WITHIN_S = 60.0


@dataclass(frozen=True)
class PeerProgram:
    """A generator's program as it was found on this host."""

    name: str
    path: Path
    version: str


def find_peer(workload: Workload, pattern: str, oldest: tuple[int, ...], mend: str, why: str) -> PeerProgram:
    """The program of `load.generator`, whose --version matches `pattern` with its version as the only group.

    Raises EnvironmentLacks where it is missing or older than `oldest`, which lacks what `why` says, and BadInput where
    load.path is something else.
    """
    name = workload.load.generator
    found = find_installed("load.path", workload.load.path, name, mend)
    match = re.search(pattern, ask_version(found, "load.path", name))
    if match is None:
        raise BadInput(f"{found} does not call itself a {name}: set load.path to one.")
    if tuple(int(part) for part in match[1].split(".")) < oldest:
        wanted = ".".join(map(str, oldest))
        raise EnvironmentLacks(
            f"{found} is version {match[1]}, but {wanted} is the first {why}: {mend}, or set load.path."
        )
    return PeerProgram(name, Path(found), match[1])


class Peer(ABC):
    """A closed loop at work; `start_ns` is when all its connections were there."""

    def __init__(self, workload: Workload, program: PeerProgram, server: Server, directory: Path) -> None:
        self.workload = workload
        self.found = program
        self.directory = directory
        self.start_ns = 0
        self._server = server
        self._connected_before = self._connected()
        directory.mkdir()
        self.arguments = self.command()
        self._spent_before = resource.getrusage(resource.RUSAGE_CHILDREN)
        # Line by line: what is kept in a buffer until it is full would be dated late.
        command = ["stdbuf", "-oL", str(program.path), *self.arguments]
        self.program = Program(program.name, command, self.on_line, self._prepare())

    @abstractmethod
    def command(self) -> list[str]:
        """The program's arguments."""

    @abstractmethod
    def on_line(self, line: bytes) -> None:
        """Take a line of the program's output."""

    @abstractmethod
    def end(self) -> None:
        """Tell the program to end, and wait until it has told all that it will."""

    @abstractmethod
    def result(self) -> dict[str, Any]:
        """What it told: those fields of `load.json` that depend on the program."""

    def longest_s(self) -> float:
        """How long the load can last at most."""
        run = self.workload.run
        return (run.warm_up + run.limit + run.cool_down) / 1e9

    def wait_until_started(self) -> None:
        """Wait until the server has all connections; RunFailed when the program ends first."""
        wanted = self._connected_before + self.workload.load.clients
        self.program.wait_for(lambda: self._connected() >= wanted, f"its {self.workload.load.clients} connections", 60)
        self.start_ns = time.monotonic_ns()

    def stop(self) -> dict[str, Any]:
        """End the load; returns what is stored as `load.json`."""
        self.end()
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        load = self.workload.load
        return {
            "schema": rundir.CLOSED_LOAD_SCHEMA,
            "generator": self.found.name,
            "version": self.found.version,
            "path": str(self.found.path),
            "arguments": self.arguments,
            "connections": load.clients,
            "rate_wanted": None,
            "cost": {
                "user_s": round(spent.ru_utime - self._spent_before.ru_utime, 6),
                "system_s": round(spent.ru_stime - self._spent_before.ru_stime, 6),
            },
        } | self.result()

    def _connected(self) -> int:
        return int(self._server.info("clients")["connected_clients"])

    def _prepare(self) -> Callable[[], None]:
        load = self.workload.load

        def prepare() -> None:
            if load.cpu >= 0:
                os.sched_setaffinity(0, {load.cpu})
            if load.realtime:
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(REALTIME_PRIORITY))

        return prepare

    def _said(self) -> RunFailed:
        return RunFailed(f"{self.found.name} told no result: {self.program.words() or 'it left no word.'}")


def ended_by(program: Program, signal: int, seconds: float = _ENDS_WITHIN_S, code: int = 0) -> None:
    """Send the signal that ends the program, and wait for it to end with `code`."""
    program.process.send_signal(signal)
    program.wait(seconds, code)

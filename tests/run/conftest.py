# SPDX-License-Identifier: Apache-2.0
"""Runs of the real command, watched for what they leave behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

FORKTAIL = Path(sys.executable).with_name("forktail")

TINY = """
[server]
size = "32MiB"
[load]
rate = 2_000
clients = 10
[snapshot]
at = "1s"
[run]
warm_up = "500ms"
duration = "3s"
cool_down = "500ms"
limit = "20s"
"""


@dataclass
class Command:
    """A `forktail` command under way; all that it starts works somewhere below its `directory`."""

    process: subprocess.Popen[str]
    directory: Path

    def finish(self, seconds: float = 60) -> tuple[int, str, str]:
        output, errors = self.process.communicate(timeout=seconds)
        return self.process.returncode, output, errors

    def started(self) -> dict[int, str]:
        """Every living process that works below the directory, itself left out: pid and program."""
        found = {}
        for directory in Path("/proc").iterdir():
            if not directory.name.isdigit() or int(directory.name) == self.process.pid:
                continue
            try:
                if (directory / "cwd").readlink().is_relative_to(self.directory):
                    found[int(directory.name)] = (directory / "comm").read_text().strip()
            except OSError:
                continue
        return found

    def wait_for(self, condition: Callable[[], object], seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.process.poll() is None, f"ended early: {self.process.communicate()}"
            assert time.monotonic() < deadline, "the moment that the test waits for did not come"
            time.sleep(0.01)

    def pid_of(self, program: str) -> int:
        """The pid of the process that runs `program`, waited for."""
        self.wait_for(lambda: program in self.started().values())
        return next(pid for pid, name in self.started().items() if name == program)

    def wait_for_load(self) -> None:
        """Wait until the server is filled and the probe and the load are at work."""
        self.wait_for(lambda: [*self.directory.rglob("*.partial/queries.bin*")])

    def orphans(self, seconds: float = 5) -> dict[int, str]:
        """What is still alive; a process that was killed may take a moment to go."""
        deadline = time.monotonic() + seconds
        while (left := self.started()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left


Start = Callable[..., Command]


@contextmanager
def starting(directory: Path) -> Iterator[Start]:
    """Start `forktail` with arguments in a directory; `before` puts a command such as unshare in front of it."""
    commands: list[Command] = []

    def begin(*arguments: str | Path, before: Sequence[str] = (), **environment: str) -> Command:
        process = subprocess.Popen(
            [*before, FORKTAIL, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=directory,
            env=os.environ | environment,
            start_new_session=True,
        )
        commands.append(Command(process, directory.resolve()))
        return commands[-1]

    try:
        yield begin
    finally:
        for command in commands:
            living = [command.process.pid] if command.process.poll() is None else []
            for pid in [*command.started(), *living]:
                # Some end by themselves once others of the command are killed.
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            command.process.wait()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as begin:
        yield begin


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A workload of a few seconds."""
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return path

# SPDX-License-Identifier: Apache-2.0
"""A program at work beside the server: its lines are taken as they come, and it is gone when its user is."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType

from forktail.errors import ForktailError, RunFailed
from forktail.measure.child import start_child


class Program:
    """A program at work: commands go to its standard input, `on_line` is called by `pump` for each line of its output.

    What it says on standard error ends up in the exception that `wait` raises when the program fails. `prepare` is run
    in it before it is executed. Exit codes of which nothing else is known mean RunFailed.
    """

    exit_kinds: Mapping[int, type[ForktailError]] = MappingProxyType({})

    def __init__(
        self,
        name: str,
        command: Sequence[str | os.PathLike[str]],
        on_line: Callable[[bytes], None],
        prepare: Callable[[], object] = lambda: None,
    ) -> None:
        self.name = name
        self._on_line = on_line
        self._output = b""
        self.errors = b""
        self.process = start_child(command, stdin=subprocess.PIPE, prepare=prepare)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)

    def say(self, command: str) -> None:
        """Send one command; a program that is gone already is found out by `pump` and `wait`."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError, ValueError):
            self.process.stdin.write(command.encode() + b"\n")
            self.process.stdin.flush()

    def pump(self) -> None:
        """Take what the program has written so far, without waiting."""
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.errors += self.process.stderr.read() or b""
        self._output += self.process.stdout.read() or b""
        *lines, self._output = self._output.split(b"\n")
        for line in lines:
            self._on_line(line)

    def wait_for(self, condition: Callable[[], bool], what: str, seconds: float) -> None:
        """Pump until `condition` holds; RunFailed when the program ends first or the time is over."""
        deadline = time.monotonic() + seconds
        while True:
            ended = self.process.poll() is not None
            self.pump()
            if condition():
                return
            if ended:
                raise self.failure(f"ended before {what}")
            if time.monotonic() > deadline:
                raise RunFailed(f"{self.name} did not get to {what} within {seconds:g} s: run again on an idler host.")
            time.sleep(0.002)

    def wait(self, seconds: float, expected: int = 0) -> None:
        """Wait for a regular end and take the last lines; the program's own sentence is raised if it failed."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            self.pump()
            if time.monotonic() > deadline:
                raise RunFailed(f"{self.name} did not end within {seconds:g} s of being told to.")
            time.sleep(0.005)
        self.pump()
        if self.process.returncode != expected:
            raise self.failure("failed")

    def failure(self, how: str) -> ForktailError:
        """The program's own sentence as the kind of error that its exit code tells, or `how` where it was mute."""
        code = self.process.returncode
        if code < 0:
            words = f" after: {self.words()}" if self.words() else "."
            return RunFailed(f"{self.name} was ended by {signal.Signals(-code).name}{words}")
        kind = self.exit_kinds.get(code, RunFailed)
        return kind(self.words() or f"{self.name} {how}, with exit code {code} and without a word.")

    def words(self) -> str:
        """What the program said on standard error, as a sentence; empty where it said nothing."""
        return self.errors.decode(errors="replace").strip()

    def end(self) -> None:
        """Make sure that the program is gone, whatever state it is in."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(2)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

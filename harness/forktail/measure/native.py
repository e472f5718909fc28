# SPDX-License-Identifier: Apache-2.0
"""forktail's two native programs: where they are, and how a conversation in JSON lines with one is held."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from forktail.errors import BadInput, EnvironmentLacks, ForktailError, RunFailed

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def die_with_parent() -> None:
    """Run in a child between fork and exec: a harness that is killed must leave no process behind."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def find_native(name: str) -> Path:
    """The program `name` beside this Python (where it is installed), else on PATH; EnvironmentLacks if nowhere."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise EnvironmentLacks(f"{name} is not installed: run `make setup`, which builds it, or put it on PATH.")
    return Path(found)


class Native:
    """A native program at work: commands go to its standard input, events come from its standard output.

    `on_event` is called by `pump` for each event; errors on standard error end up in the exception that `wait`
    raises when the program fails.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str | os.PathLike[str]],
        on_event: Callable[[dict[str, Any]], None],
    ) -> None:
        self.name = name
        self._on_event = on_event
        self._output = b""
        self._errors = b""
        # A session of its own: Ctrl-C reaches the harness alone, which then ends each program in order.
        self.process = subprocess.Popen(
            [find_native(name), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
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
        self._errors += self.process.stderr.read() or b""
        self._output += self.process.stdout.read() or b""
        *lines, self._output = self._output.split(b"\n")
        for line in lines:
            try:
                event = json.loads(line)
            except json.JSONDecodeError as error:
                raise RunFailed(f"{self.name} wrote a line that is not JSON ({line[:80]!r}): {error}.") from error
            self._on_event(event)

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

    def wait(self, seconds: float) -> None:
        """Wait for a regular end and take the last events; the program's own sentence is raised if it failed."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            self.pump()
            if time.monotonic() > deadline:
                raise RunFailed(f"{self.name} did not end within {seconds:g} s of being told to.")
            time.sleep(0.005)
        self.pump()
        if self.process.returncode != 0:
            raise self.failure("failed")

    def failure(self, how: str) -> ForktailError:
        """The program's own sentence as the kind of error that its exit code tells, or `how` where it was mute."""
        sentence = self._errors.decode(errors="replace").strip()
        code = self.process.returncode
        kinds: dict[int, type[ForktailError]] = {2: BadInput, 3: EnvironmentLacks}
        kind = kinds.get(code, RunFailed)
        return kind(sentence or f"{self.name} {how}, with exit code {code} and without a word.")

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

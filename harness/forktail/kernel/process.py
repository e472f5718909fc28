# SPDX-License-Identifier: Apache-2.0
"""The programs that a build runs: none outlives it, and each failure ends in a sentence."""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from forktail.errors import EnvironmentLacks, ForktailError, RunFailed

_FULL = "No space left on device"
_TELLING = (_FULL, "error:", "Error:", "undefined reference", "multiple definition", "FAILED:")
_COMPLAINT = ("***",)
_REMEMBERED_LINES = 1_000
_ENDING_S = 5


def telling(lines: Sequence[str]) -> str:
    """The lines of an output that say why it failed, at most three; make's own complaint where none does."""
    spoken = [line.strip() for line in lines if line.strip()]
    for words in (_TELLING, _COMPLAINT):
        if found := [line for line in spoken if any(word in line for word in words)]:
            return "; ".join(found[:3])
    return spoken[-1] if spoken else "it said nothing"


def _environment() -> dict[str, str]:
    """Without what an outer make or the user's kernel work hands down; messages in the language we look for."""
    foreign = ("MAKE", "MFLAGS", "KBUILD", "KCONFIG", "LOCALVERSION", "CROSS_COMPILE", "ARCH")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)} | {"LC_ALL": "C"}


@contextmanager
def _guarded(process: subprocess.Popen[str]) -> Iterator[None]:
    """End the whole process group when the block is left, and also when forktail itself is killed.

    make's own children survive its death, so a shell waits for the end of a pipe that only forktail holds open.
    """
    watch = subprocess.Popen(
        ["/bin/sh", "-c", 'read -r _; kill -s KILL -- "-$0"', str(process.pid)],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(_ENDING_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        watch.kill()
        watch.communicate()


def run(
    command: Sequence[str | Path],
    failure: Callable[[str], ForktailError],
    log: IO[str] | None = None,
    on_line: Callable[[str], None] | None = None,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Run a program to its end, its output into `log`; `failure` makes the error from the telling lines.

    `variables` are added to its environment.
    """
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=_environment() | dict(variables or {}),
        start_new_session=True,
    )
    last: deque[str] = deque(maxlen=_REMEMBERED_LINES)
    with _guarded(process):
        assert process.stdout is not None
        for line in process.stdout:
            last.append(line)
            if log:
                log.write(line)
            if on_line:
                on_line(line)
        process.wait()
    if process.returncode == 0:
        return
    if any(_FULL in line for line in last):
        raise EnvironmentLacks(f"The disk became full ({telling(last)}): free space, or set XDG_CACHE_HOME elsewhere.")
    raise failure(telling(last))


def failed(what: str) -> Callable[[str], ForktailError]:
    """A failure that is told as `what`, with the program's own words."""
    return lambda words: RunFailed(f"{what} failed: {words}.")

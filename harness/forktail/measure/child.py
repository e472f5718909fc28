# SPDX-License-Identifier: Apache-2.0
"""Child processes: each starts whole or not at all when the harness is interrupted, and is gone when the harness is."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import IO

_INTERRUPTING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1
_TIDIES_WITHIN_S = 5.0
_libc = ctypes.CDLL(None, use_errno=True)

Stream = int | IO[bytes] | None


def die_with_parent() -> None:
    """Run in a child between fork and exec: a harness that is killed must leave no process behind."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Put off what interrupts the harness until the end of the block.

    A KeyboardInterrupt would be lost where Python runs its hooks around a fork, and so would a process that was started
    a moment before it. A mask would not do: any thread takes a signal, and Python handles it in the main one.
    """
    seen: list[int] = []
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in _INTERRUPTING}
        before = {number: handler for number, handler in before.items() if handler not in (signal.SIG_IGN, None)}
    try:
        for number in before:
            signal.signal(number, lambda number, _frame: seen.append(number))
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for taken in seen:
            signal.raise_signal(taken)


class Child(subprocess.Popen[bytes]):
    """A process that can be asked for, and waited for, while the harness is interrupted.

    Popen takes a lock to look for the end of a process. Python handles a signal as soon as a call is over, that which
    took the lock too: a KeyboardInterrupt left it taken, and who then waited for the process waited for ever.
    """

    def poll(self) -> int | None:
        """The exit code, negative for a signal, or None while the process lives."""
        if self.returncode is None and not self._has_ended():
            return None
        with undisturbed():
            return super().poll()

    def wait(self, timeout: float | None = None) -> int:
        """The exit code once the process has ended; subprocess.TimeoutExpired after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if timeout is not None and left is not None and left <= 0:
                raise subprocess.TimeoutExpired(self.args, timeout)
            self._sleep_until_end(left)
        return code

    def _has_ended(self) -> bool:
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True  # Another thread has taken its exit code.

    def _sleep_until_end(self, seconds: float | None) -> None:
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            ended = select.poll()
            ended.register(pidfd, select.POLLIN)
            ended.poll(None if seconds is None else seconds * 1000)
        finally:
            os.close(pidfd)


def start_child(
    command: Sequence[str | os.PathLike[str]],
    *,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.PIPE,
    stderr: Stream = subprocess.PIPE,
    prepare: Callable[[], object] = lambda: None,
    stays: bool = False,
) -> Child:
    """Start a program in a session of its own: Ctrl-C reaches the harness alone, which then ends each in order.

    `prepare` is run in it before it is executed; one that `stays` does not die with the harness. Raises what Popen
    does.
    """

    def begin() -> None:
        if not stays:
            die_with_parent()
        prepare()

    process = None
    try:
        with undisturbed():
            process = Child(
                command, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True, preexec_fn=begin
            )
    except KeyboardInterrupt:
        if process is not None:
            process.kill()
            process.wait()
        raise
    return process


def run_child(
    command: Sequence[str | os.PathLike[str]], data: bytes | None = None, seconds: float | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end with `data` on its standard input; subprocess.TimeoutExpired after `seconds`."""
    process = start_child(command, stdin=subprocess.DEVNULL if data is None else subprocess.PIPE)
    with process:
        try:
            output, errors = process.communicate(data, seconds)
        except BaseException:
            # All of its session, and with a moment to tidy up.
            with suppress(subprocess.TimeoutExpired, ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(_TIDIES_WITHIN_S)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)

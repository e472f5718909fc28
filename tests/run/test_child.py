# SPDX-License-Identifier: Apache-2.0
"""Children of the harness, started while it is being interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

from forktail.measure.child import run_child, start_child, undisturbed

_ROUNDS = 150
_NOTICED_WITHIN_S = 5.0


def _children() -> list[str]:
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()


def test_no_interrupt_is_lost_while_children_start() -> None:
    before = _children()
    lost = 0
    for number in range(_ROUNDS):
        timer = threading.Timer(0.001 + 0.02 * number / _ROUNDS, os.kill, (os.getpid(), signal.SIGINT))
        deadline = time.monotonic() + _NOTICED_WITHIN_S
        try:
            timer.start()
            while time.monotonic() < deadline:
                run_child(["true"])
            lost += 1
        except KeyboardInterrupt:
            pass
        timer.join()
        assert _children() == before
    assert lost == 0


def test_an_interrupt_waits_for_the_end_of_what_must_be_whole() -> None:
    steps = []

    def interrupted() -> None:
        with undisturbed():
            with undisturbed():
                signal.raise_signal(signal.SIGINT)
                steps.append("inner")
            steps.append("outer")
        steps.append("after")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert steps == ["inner", "outer"]


def test_an_ignored_interrupt_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with undisturbed():
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_child_takes_signals_as_if_nothing_had_been_put_off() -> None:
    child = start_child(["sleep", "60"])
    with child:
        child.send_signal(signal.SIGINT)
        assert child.wait(5) == -signal.SIGINT


def test_what_runs_too_long_is_ended_with_all_that_it_started() -> None:
    with pytest.raises(subprocess.TimeoutExpired) as raised:
        run_child(["sh", "-c", "sleep 61 & echo $!; wait"], seconds=0.5)
    grandchild = int(raised.value.output or 0)
    assert grandchild
    deadline = time.monotonic() + 5
    while Path(f"/proc/{grandchild}/cmdline").exists() and Path(f"/proc/{grandchild}/cmdline").read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.01)

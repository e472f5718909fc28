# SPDX-License-Identifier: Apache-2.0
"""Children of the harness, started while it is being interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from forktail.measure.child import Child, run_child, start_child, undisturbed

_ROUNDS = 150
_INTERRUPTS = 2_000
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


# At moments of no rhythm.
_INTERRUPTS_ITS_PARENT = """
import os, random, time
parent = os.getppid()
while os.getppid() == parent:
    os.kill(parent, 15)
    time.sleep(random.random() / 2000)
"""


@pytest.mark.parametrize("ask", [Child.poll, lambda child: child.wait(0.001), lambda child: child.send_signal(0)])
def test_a_child_that_was_asked_for_while_interrupted_can_be_waited_for(ask: Callable[[Child], object]) -> None:
    asking = False

    def interrupt(_signal: int, _frame: object) -> None:
        nonlocal asking
        if asking:
            asking = False
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    child = start_child(["sleep", "62"])
    interrupter = start_child([sys.executable, "-c", _INTERRUPTS_ITS_PARENT])
    try:
        for _ in range(_INTERRUPTS):
            with suppress(KeyboardInterrupt):
                asking = True
                while True:
                    with suppress(subprocess.TimeoutExpired):
                        ask(child)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        interrupter.kill()
        interrupter.wait()
        signal.signal(signal.SIGTERM, before)
        child.kill()
    assert child.wait(_NOTICED_WITHIN_S) == -signal.SIGKILL


def test_a_wait_ends_with_the_child_or_with_its_time() -> None:
    with start_child(["cat"], stdin=subprocess.PIPE) as child:
        begun = time.monotonic()
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.2)
        assert 0.2 <= time.monotonic() - begun < 2
        assert child.stdin is not None
        child.stdin.close()
        assert child.wait() == child.wait(0) == child.poll() == 0


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

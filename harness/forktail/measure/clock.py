# SPDX-License-Identifier: Apache-2.0
"""What two hosts' clocks say at the same time: pings of four timestamps, taken raw (analysis/clock.py fits them)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from io import BufferedRWPair
from threading import Event, Thread

from forktail.errors import RunFailed

EDGE_PINGS = 64
"""So many in a row before the load and after it: the quickest of them are near the truth."""

BETWEEN_PINGS_S = 0.1
ANSWERS_WITHIN_S = 10.0

_READINGS = 5
"""A process that loses its CPU between two clocks does so once, and not five times in a row."""

Ping = tuple[int, int, int, int]
"""Sent by the asker's clock, received and answered by the answerer's, received by the asker's; CLOCK_MONOTONIC, ns."""


def answer_pings(stream: BufferedRWPair) -> None:
    """Answer each line with the times at which it was read and answered, until the asker has enough."""
    while stream.readline():
        received = time.monotonic_ns()
        stream.write(b"%d %d\n" % (received, time.monotonic_ns()))
        stream.flush()


def wall_ahead() -> int:
    """What CLOCK_REALTIME is ahead of CLOCK_MONOTONIC now, ns: by the quickest of several readings of both."""
    readings = []
    for _ in range(_READINGS):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        readings.append((after - before, wall - (before + after) // 2))
    return min(readings)[1]


class ClockLog:
    """Pings over a connection that answers them: many at both ends of the load, and a few all along it."""

    def __init__(self, connection: socket.socket) -> None:
        self.pings: list[Ping] = []
        connection.settimeout(ANSWERS_WITHIN_S)
        self._stream = connection.makefile("rwb")
        self._enough = Event()
        self._thread = Thread(target=self._ask_along, daemon=True)

    def begin(self) -> None:
        """Ping many times, then on and on in the background."""
        self._ask_many()
        self._thread.start()

    def end(self) -> None:
        """End the pings in the background, and ping many times."""
        self._enough.set()
        self._thread.join()
        self._ask_many()
        self._stream.close()

    def quickest(self) -> Ping:
        """The ping with the shortest way so far."""
        return min(self.pings, key=round_trip_ns)

    def _ask_many(self) -> None:
        for _ in range(EDGE_PINGS):
            self._ask()

    def _ask_along(self) -> None:
        while not self._enough.wait(BETWEEN_PINGS_S):
            try:
                self._ask()
            except RunFailed:
                return  # The last pings meet the same fault, where somebody hears of it.

    def _ask(self) -> None:
        try:
            sent = time.monotonic_ns()
            self._stream.write(b"\n")
            self._stream.flush()
            answer = self._stream.readline()
            back = time.monotonic_ns()
            received, answered = map(int, answer.split())
        except (OSError, ValueError) as error:
            raise RunFailed(f"The clock of the load's host does not answer any more ({error}).") from error
        self.pings.append((sent, received, answered, back))


def round_trip_ns(ping: Ping) -> int:
    """How long a ping was on its way, both ways together."""
    sent, received, answered, back = ping
    return (back - sent) - (answered - received)


def translation(ping: Ping) -> Callable[[int], int]:
    """How a time of the answerer is one of the asker, by one ping alone: off by half its round trip at most."""
    sent, received, answered, back = ping
    offset = ((sent - received) + (back - answered)) // 2
    return lambda time_ns: time_ns + offset

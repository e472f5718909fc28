# SPDX-License-Identifier: Apache-2.0
"""The event log `events.bin`: what the kernel did to the server during a run (docs/formats.md)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from forktail.analysis.binary_log import ANEW, LogFormat, read_header
from forktail.errors import BadInput

EVENT = np.dtype(
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

_FORMAT = LogFormat("event log", b"FTELOG\0\0", 2, struct.Struct("<8s4I5Q"), EVENT.itemsize, oldest=1)
"""Version 2 has two kinds more than version 1, and no other difference."""


class Kind(IntEnum):
    """What an event tells; the values are those of the file."""

    FORK = 1
    PAGE_TABLE_COPY = 2
    INTERRUPTION = 3
    FAULT = 4
    RUN_QUEUE = 5
    CHILD_EXIT = 6
    WINDOW_END = 7
    RENAME = 8
    FLIGHT = 9
    FORK_UNMEASURED = 10
    """Only the birth of the child was seen."""
    BLOCKED = 11
    """Uninterruptible sleep: a disk, a file system, a lock of the kernel."""


FAULT_PAGE_PRESENT = 1
FAULT_PRESENCE_KNOWN = 2
"""Bits of a fault's aux."""

Events = npt.NDArray[Any]
"""Records of dtype EVENT."""


@dataclass(frozen=True)
class EventLog:
    """The events of a run sorted by start, and what is known of their completeness."""

    server: int
    """The server's tgid in the root PID namespace."""
    attach_ns: int
    events: Events
    gaps: dict[int, int]
    """Events lost per CPU, by the holes in that CPU's sequence numbers; CPUs without a hole are absent."""

    def of(self, kind: Kind) -> Events:
        """The events of one kind: of the server itself, or of any process where the kind is the child's too."""
        chosen = self.events["kind"] == kind
        if kind not in (Kind.CHILD_EXIT, Kind.RENAME, Kind.FLIGHT):
            chosen &= self.events["tgid"] == self.server
        of_kind: Events = self.events[chosen]
        return of_kind


def ends(events: Events) -> npt.NDArray[np.int64]:
    """The end of each event, ns."""
    ended: npt.NDArray[np.int64] = (events["start"] + events["duration"]).astype(np.int64)
    return ended


def read_event_log(path: Path) -> EventLog:
    """Read and verify an event log; every fault is a BadInput that names the file."""
    server, records, attach_ns, *_ = read_header(path, _FORMAT)
    events = np.fromfile(path, dtype=EVENT, offset=_FORMAT.header.size, count=records)
    _verify(path, events)
    gaps = _gaps(path, events)
    return EventLog(server, attach_ns, events[np.argsort(events["start"], kind="stable")], gaps)


def _verify(path: Path, events: Events) -> None:
    unknown = (events["kind"] < min(Kind)) | (events["kind"] > max(Kind))
    if unknown.any():
        first = int(np.argmax(unknown))
        raise BadInput(f"{path}: record {first} has the unknown kind {events['kind'][first]}: {ANEW}")
    beyond = (events["start"] >= 2**62) | (events["duration"] >= 2**62)
    if beyond.any():
        raise BadInput(f"{path}: record {int(np.argmax(beyond))} has no CLOCK_MONOTONIC time: {ANEW}")


def _gaps(path: Path, events: Events) -> dict[int, int]:
    """Count the sequence numbers missing between the first and the last seen of each CPU.

    A loss before the first or after the last event of a CPU leaves no hole: the trailer's counts show that one.
    """
    gaps = {}
    for cpu in np.unique(events["cpu"]):
        sequence = np.sort(events["sequence"][events["cpu"] == cpu]).astype(np.int64)
        steps = np.diff(sequence)
        if (steps == 0).any():
            raise BadInput(f"{path}: CPU {cpu} has the sequence number {sequence[int(np.argmin(steps))]} twice: {ANEW}")
        missing = int((steps - 1).sum())
        if missing:
            gaps[int(cpu)] = missing
    return gaps

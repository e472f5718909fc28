# SPDX-License-Identifier: Apache-2.0
"""The flight of a fork: from where it takes up the page tables until the child has all of them, or never will."""

from __future__ import annotations

from dataclasses import dataclass

from forktail.analysis.eventlog import EventLog, Kind

_ABORTED = 1
_TABLES = 2**31 - 1


@dataclass(frozen=True)
class Flight:
    """One flight, as our kernels' tracepoints tell it (docs/formats.md, kind 9). Times are CLOCK_MONOTONIC ns."""

    child: int
    """The child that fork left page tables to; 0 where fork had copied all of them when it returned."""
    start_ns: int
    end_ns: int
    aborted: bool
    """There is a page table that the child never got: the kernel kills it."""
    copied: int
    """Page tables copied; of a child's flight only those that fork had left, by whoever copied them."""
    tables: int
    """Page tables of all levels that the server had when the flight began."""

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


def flights(log: EventLog) -> list[Flight]:
    """Every flight that was seen to end, in the order of their starts."""
    found = []
    for event in log.of(Kind.FLIGHT):
        start, aux = int(event["start"]), int(event["aux"])
        found.append(
            Flight(
                child=int(event["context"]),
                start_ns=start,
                end_ns=start + int(event["duration"]),
                aborted=bool(aux & _ABORTED),
                copied=aux >> 1 & _TABLES,
                tables=aux >> 32,
            )
        )
    return found

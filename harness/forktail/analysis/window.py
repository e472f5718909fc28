# SPDX-License-Identifier: Apache-2.0
"""The window of each snapshot: from the entry of the server's fork until the fork's child has exited."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from forktail.analysis.eventlog import EventLog, Events, Kind, ends
from forktail.analysis.flight import Flight, flights

_SIGNAL = 0x7F
"""The part of a wait status that names a signal."""


@dataclass(frozen=True)
class Snapshot:
    """One fork of the server and the window that it opens. Times are CLOCK_MONOTONIC ns."""

    child: int
    fork_start_ns: int
    fork_end_ns: int
    thread: int
    """The server's thread that forked, as the events call it."""
    page_table_copy_ns: int | None
    """Time inside the fork that went into copying page tables; None where no probe saw it."""
    end_ns: int
    ended_by: str | None
    """The event that closed the window, `window_end` or `child_exit`; None when the records end first."""
    flight: Flight | None = None
    """The flight of this fork; None where no probe saw one end."""
    signal: int = 0
    """What ended the child; 0 where it exited by itself, or was not seen to."""
    measured: bool = True
    """False where only the birth of the child was seen: `fork_end_ns` is the birth, `fork_start_ns` is the earliest
    that the fork can have begun, by what forks of this server took."""

    @property
    def start_ns(self) -> int:
        return self.fork_start_ns

    @property
    def truncated(self) -> bool:
        return self.ended_by is None

    @property
    def killed(self) -> bool:
        """Whether the child had no chance to end by itself, so that the snapshot failed."""
        return bool(self.signal or (self.flight and self.flight.aborted))

    @property
    def fork_ns(self) -> int:
        return self.fork_end_ns - self.fork_start_ns

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


def longest_fork(log: EventLog) -> int:
    """The longest fork of the server that was measured, ns; 0 where none was."""
    return int(log.of(Kind.FORK)["duration"].max(initial=0))


def snapshots(log: EventLog, last_ns: int, unmeasured_ns: int = 0) -> list[Snapshot]:
    """The server's forks in time order; a window that nothing closed is cut off at `last_ns`, the end of the records.

    A fork that failed, without a child, opens no window. One of which only the birth of its child was seen opens it
    `unmeasured_ns` before the birth: the most that a fork of this server is known to take.
    """
    copies = log.of(Kind.PAGE_TABLE_COPY)
    window_ends = log.of(Kind.WINDOW_END)
    child_exits = log.of(Kind.CHILD_EXIT)
    seen_flights = flights(log)
    found = []
    forks = np.concatenate([log.of(Kind.FORK), log.of(Kind.FORK_UNMEASURED)])
    for fork in forks[np.argsort(forks["start"], kind="stable")]:
        measured = int(fork["kind"]) == Kind.FORK
        child, start = int(fork["aux"]), int(fork["start"])
        end = start + int(fork["duration"])
        if not measured:
            start -= unmeasured_ns
        if not 0 < child < 2**31:
            continue
        inside = copies[(copies["start"] >= start) & (ends(copies) <= end)]
        # SIGCHLD comes first: child_exit is seen before or after the child's memory is torn down, by kernel version.
        closed, ended_by = _first(window_ends, child, end), "window_end"
        if closed is None:
            closed, ended_by = _first(child_exits, child, end), "child_exit"
        own = [one for one in seen_flights if start <= one.start_ns <= end and one.child in (0, child)]
        exit_at = _at(child_exits, child, end)
        found.append(
            Snapshot(
                child=child,
                fork_start_ns=start,
                fork_end_ns=end,
                thread=int(fork["tid"]),
                page_table_copy_ns=int(inside["duration"].sum()) if len(inside) else None,
                end_ns=max(last_ns, end) if closed is None else closed,
                ended_by=None if closed is None else ended_by,
                flight=own[0] if own else None,
                signal=int(child_exits["aux"][exit_at]) & _SIGNAL if exit_at is not None else 0,
                measured=measured,
            )
        )
    return found


def _first(events: Events, child: int, after_ns: int) -> int | None:
    """When the first event of this child at or after a time was; pids are used again, so the first counts."""
    at = _at(events, child, after_ns)
    return None if at is None else int(events["start"][at])


def _at(events: Events, child: int, after_ns: int) -> int | None:
    matching = np.flatnonzero((events["context"] == child) & (events["start"] >= after_ns))
    return int(matching[0]) if len(matching) else None

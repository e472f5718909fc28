# SPDX-License-Identifier: Apache-2.0
"""The bracket of a window: the instants between which user space saw it begin and end.

The probe's window is made of kernel events alone. The harness asks for the snapshot and polls INFO, and the server
reads its own wall clock. Each of them bounds the window by an argument that holds for any length (docs/analysis.md):

- The fork lies between the request of BGSAVE and its reply, as the server forks before it replies.
- The child has exited before the server reaps it, and INFO says "in progress" until then. So the window has ended when
  INFO first says "finished".
- The server reaps in each serverCron. So the window ended no earlier than a tick, and what delayed that cron, before
  the last INFO that said "in progress" was asked.
- `rdb_last_bgsave_time_sec` is a difference of two whole seconds of the wall clock, each of which is known to lie in
  such an interval too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from forktail.analysis.forks import claims, requests
from forktail.analysis.quantity import time_text
from forktail.analysis.querylog import NEVER
from forktail.analysis.result import Result
from forktail.analysis.run import Document, Run, number, section
from forktail.analysis.window import Snapshot

DEFAULT_HZ = 10
CRON_SLACK_NS = 10_000_000
"""The event loop's timers count whole milliseconds, and a cron is due a tick after the end of the last one, which has
its own work to do: rehashing alone may take 1 ms of it."""
COARSE_CLOCK_NS = 10_000_000
"""time(NULL) reads the kernel's coarse clock, which is behind by a timer tick at most: 10 ms at 100 Hz."""
STEPPED_NS = 5_000_000
"""A wall clock that moved by more during a snapshot was set, and not slewed: 500 ppm of 10 s are 5 ms."""
_S = 1_000_000_000


@dataclass(frozen=True)
class Bracket:
    """What bounds one window, CLOCK_MONOTONIC ns; None where it was not recorded."""

    requested_ns: int | None
    replied_ns: int | None
    in_progress_ns: int | None
    """When the last INFO was asked that said that the snapshot was in progress."""
    finished_ns: int | None
    """When the first INFO had come that said that it was not."""
    reaped_within_ns: int
    """How long after the child's exit the server may have reaped it: a tick, and what can have delayed that cron."""


def tick_ns(run: Run) -> int:
    """From one serverCron to the next, ns: hz of INFO, which is 10 unless the configuration says otherwise."""
    hz = number(section(run.manifest, "info"), "hz") or DEFAULT_HZ
    return round(_S / hz)


def longest_wait_ns(run: Run, from_ns: int, to_ns: int) -> int:
    """How long the server's event loop can have been kept from its timers between two instants, ns.

    As long as the slowest query that was under way then, whose wait was one for the same loop; between two queries it
    can be kept unseen.
    """
    if run.closed is not None:
        closed = run.closed
        touched = (closed.starts_ns <= to_ns) & (closed.ends_ns >= from_ns) & (closed.counts > 0)
        return round(closed.max_us[touched].max() * 1000) if touched.any() else 0
    queries = run.queries
    if not len(queries):
        return 0
    answered = queries.latency_ns != NEVER
    under_way = answered & (queries.intended_ns <= to_ns) & (queries.intended_ns + queries.latency_ns >= from_ns)
    slowest = int(queries.latency_ns[under_way].max()) if under_way.any() else 0
    return slowest + (round(_S / queries.rate) if queries.rate > 0 else 0)


def bracket(run: Run, mark: Document) -> Bracket:
    """The bracket of the snapshot that a mark of the manifest is of."""
    requested, finished = _instant(mark, "requested_ns"), _instant(mark, "finished_seen_ns")
    polled = [_instant(mark, "in_progress_seen_ns"), _instant(mark, "last_in_progress_ns")]
    since, until = requested or 0, finished or run.marks.load_end_ns
    sampled = [int(s["t_ns"]) for s in run.info if s.get("rdb_bgsave_in_progress") and since <= s["t_ns"] < until]
    in_progress = max((one for one in [*polled, *sampled] if one is not None), default=None)
    tick = tick_ns(run)
    late = longest_wait_ns(run, (since if in_progress is None else in_progress) - tick, until)
    return Bracket(requested, _instant(mark, "replied_ns"), in_progress, finished, tick + CRON_SLACK_NS + late)


def _instant(mark: Document, name: str) -> int | None:
    value = number(mark, name)
    return None if value is None else int(value)


def window_faults(result: Result) -> Iterator[str]:
    """Each window that is not where user space saw it, a sentence with its numbers."""
    run = result.run
    marks = requests(run)
    for place, (mark, fork) in enumerate(zip(marks, claims(marks, result.snapshots), strict=True), start=1):
        if fork is not None:
            yield from _outside(place, fork, bracket(run, mark))
    # INFO tells the time of the last one alone.
    if marks and len(marks) == len(result.snapshots):
        fault = _seconds_fault(run, result.snapshots[-1], marks[-1])
    elif result.snapshots:
        fault = _seconds_fault(run, result.snapshots[-1], {})
    else:
        fault = None
    if fault:
        yield fault


def _outside(place: int, fork: Snapshot, seen: Bracket) -> Iterator[str]:
    # Where only the birth of the child was seen, the fork's beginning is a bound and no measurement.
    if fork.measured and seen.requested_ns is not None and fork.start_ns < seen.requested_ns:
        yield (
            f"The fork of snapshot {place} began {time_text(seen.requested_ns - fork.start_ns)} before the snapshot "
            "was asked for."
        )
    if seen.replied_ns is not None and fork.fork_end_ns > seen.replied_ns:
        yield (
            f"The fork of snapshot {place} ended {time_text(fork.fork_end_ns - seen.replied_ns)} after the server had "
            "replied to BGSAVE."
        )
    if fork.truncated:
        return
    if seen.finished_ns is not None and fork.end_ns > seen.finished_ns:
        yield (
            f"INFO showed snapshot {place} finished {time_text(fork.end_ns - seen.finished_ns)} before its window "
            "closed."
        )
    if seen.in_progress_ns is not None and fork.end_ns < seen.in_progress_ns - seen.reaped_within_ns:
        yield (
            f"INFO showed snapshot {place} in progress {time_text(seen.in_progress_ns - fork.end_ns)} after its window "
            f"closed, and the server reaps a child within {time_text(seen.reaped_within_ns)}."
        )


def _seconds_fault(run: Run, fork: Snapshot, mark: Document) -> str | None:
    told = number(section(run.manifest, "info"), "rdb_last_bgsave_time_sec")
    if told is None or told < 0 or fork.truncated:
        return None
    seen = bracket(run, mark)
    # The server takes its first second when fork has returned, and its second one when it reaps the child.
    first = (fork.fork_end_ns, max(seen.replied_ns or fork.fork_end_ns, fork.fork_end_ns))
    last = (fork.end_ns, fork.end_ns + seen.reaped_within_ns)
    low, high = whole_seconds(first, last, _wall_offset(mark))
    if low <= told <= high:
        return None
    expected = f"{low} s" if low == high else f"{low} to {high} s"
    return (
        f"The last window stayed open for {time_text(fork.end_ns - fork.fork_end_ns)} after its fork, so that the "
        f"server's clock went on by {expected}, but its rdb_last_bgsave_time_sec says {told:g} s."
    )


def _wall_offset(mark: Document) -> int | None:
    """What the wall clock is ahead of CLOCK_MONOTONIC, ns; None where it was not recorded or was set meanwhile."""
    before, after = _instant(mark, "wall_ahead_ns"), _instant(mark, "wall_ahead_after_ns")
    if before is None or after is None or abs(after - before) > STEPPED_NS:
        return None
    return before


def whole_seconds(first: tuple[int, int], last: tuple[int, int], wall_ahead_ns: int | None) -> tuple[int, int]:
    """The least and the greatest difference of two whole seconds that were read in the intervals `first` and `last`.

    Intervals are CLOCK_MONOTONIC ns, both ends included. Without the wall clock any second may begin anywhere.
    """
    if wall_ahead_ns is None:
        shortest, longest = last[0] - first[1] - COARSE_CLOCK_NS, last[1] - first[0] + COARSE_CLOCK_NS
        return max(0, shortest // _S), -(-longest // _S)
    low = (last[0] + wall_ahead_ns - COARSE_CLOCK_NS) // _S - (first[1] + wall_ahead_ns) // _S
    high = (last[1] + wall_ahead_ns) // _S - (first[0] + wall_ahead_ns - COARSE_CLOCK_NS) // _S
    return max(0, low), high

# SPDX-License-Identifier: Apache-2.0
"""The server's forks against the snapshots that the run asked for, and against what else knows of forks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from forktail.analysis.eventlog import EventLog, Kind
from forktail.analysis.quantity import count_text, time_text
from forktail.analysis.run import Document, Run, number, section
from forktail.analysis.window import Snapshot, longest_fork

_NAMED = 5
"""How many forks a sentence names with their times."""
_CHILDREN_AT_WORK = {
    "rdb_bgsave_in_progress": "a snapshot",
    "aof_rewrite_in_progress": "a rewrite of the append-only file",
    "module_fork_in_progress": "a module's fork",
}


def requests(run: Run) -> list[Document]:
    """The snapshots that the run asked for, in order, each as the manifest's `marks.snapshots` has it."""
    asked = section(run.manifest, "marks").get("snapshots")
    return [mark for mark in asked if isinstance(mark, dict)] if isinstance(asked, list) else []


def unmeasured_allowance(run: Run) -> int:
    """The longest that a fork of this server is known to take, by the probe and by INFO, ns.

    A fork of which only the end was seen is taken to have begun so long before.
    """
    told = [number(document, "latest_fork_usec") for document in (*run.info, run.info_after, _kept(run))]
    return max(longest_fork(run.events), *(round((micros or 0) * 1000) for micros in told))


def claims(asked: Sequence[Document], forks: Sequence[Snapshot]) -> list[Snapshot | None]:
    """For each request, in order, the fork that answered it: the first not over before the request; None without one.

    A fork that began after the next request answers that one, or none.
    """
    times = [number(mark, "requested_ns") for mark in asked]
    found: list[Snapshot | None] = []
    taken = 0
    for place, requested in enumerate(times):
        later = next((time for time in times[place + 1 :] if time is not None), None)
        taken = next((at for at in range(taken, len(forks)) if forks[at].fork_end_ns >= (requested or 0)), len(forks))
        if taken < len(forks) and (later is None or forks[taken].start_ns < later):
            found.append(forks[taken])
            taken += 1
        else:
            found.append(None)
    return found


def unrequested(asked: Sequence[Document], forks: Sequence[Snapshot]) -> list[Snapshot]:
    """The forks that answered no request of the run."""
    own = [fork.start_ns for fork in claims(asked, forks) if fork is not None]
    return [fork for fork in forks if fork.start_ns not in own]


def fork_faults(run: Run, forks: Sequence[Snapshot]) -> Iterator[str]:
    """Why the forks seen are not those of the run's own snapshots, all of them and no other."""
    asked = requests(run)
    yield from _unrequested(run, unrequested(asked, forks))
    for place, fork in enumerate(claims(asked, forks), start=1):
        if fork is not None and not fork.measured:
            yield (
                f"Of the fork of snapshot {place} only the birth of its child was seen, {_when(run, fork)}, so "
                "when it began and how long it took are not known: leave more time between snapshots, and see "
                "`forktail doctor`."
            )
    yield from _counted(run, forks)
    yield from _ends_without_a_fork(run, forks)
    for name, what in _CHILDREN_AT_WORK.items():
        if number(run.info_before, name):
            yield (
                f"The child of {what} from before the measurement was still at work when it began (INFO's {name}): its "
                "fork's effects are in every class."
            )


def _unrequested(run: Run, forks: Sequence[Snapshot]) -> Iterator[str]:
    if not forks:
        return
    times = ", ".join(f"{_when(run, fork)} (child {fork.child})" for fork in forks[:_NAMED])
    more = f" and {count_text(len(forks) - _NAMED)} times more" if len(forks) > _NAMED else ""
    verb = "forked once" if len(forks) == 1 else f"forked {count_text(len(forks))} times"
    yield (
        f"The server {verb} without a request of this run: {times}{more}. What such a fork costs is in every class. "
        "Keep other clients from BGSAVE and BGREWRITEAOF, and switch off save points, automatic rewriting of the "
        "append-only file, replicas and modules that fork."
    )


def _when(run: Run, fork: Snapshot) -> str:
    seen = fork.fork_start_ns if fork.measured else fork.fork_end_ns
    after = seen - run.marks.load_start_ns
    return f"{time_text(abs(after))} {'after' if after >= 0 else 'before'} the load began"


def _counted(run: Run, forks: Sequence[Snapshot]) -> Iterator[str]:
    """The server's own count of its forks, over the time that the probe was attached."""
    before = number(run.info_before, "total_forks")
    # The last sample is taken while the probe is still attached.
    samples = [number(sample, "total_forks") for sample in run.info[-1:]]
    after = next((count for count in (*samples, number(run.info_after, "total_forks")) if count is not None), None)
    if before is None or after is None or after - before == len(forks):
        return
    yield (
        f"By INFO's total_forks the server forked {count_text(after - before)} times from the end of the fill to the "
        f"end of the load, but the probe saw {count_text(len(forks))} forks: the classes cannot be trusted."
    )


def _ends_without_a_fork(run: Run, forks: Sequence[Snapshot]) -> Iterator[str]:
    known = {fork.child for fork in forks}
    seen = _ends(run.events)
    for child in sorted(set(seen) - known):
        yield (
            f"Child {child} of the server ended {time_text(abs(seen[child] - run.marks.load_start_ns))} "
            f"{'after' if seen[child] >= run.marks.load_start_ns else 'before'} the load began, but its fork was not "
            "seen: that window is in the normal class."
        )


def _ends(log: EventLog) -> dict[int, int]:
    """When each child of the server was seen to end, ns."""
    ended = np.concatenate([log.of(Kind.CHILD_EXIT), log.of(Kind.WINDOW_END)])
    return {int(event["context"]): int(event["start"]) for event in ended}


def _kept(run: Run) -> Document:
    return section(run.manifest, "info")

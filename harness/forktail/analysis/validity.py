# SPDX-License-Identifier: Apache-2.0
"""The verdict on a run: what makes its result false, and what only weakens it (docs/analysis.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from forktail.analysis.attribute import STALLS, Stalls
from forktail.analysis.bracket import window_faults
from forktail.analysis.classify import AMBIGUOUS, CLASSES, NORMAL, SNAPSHOT, WARMUP
from forktail.analysis.closedload import ClosedLoad
from forktail.analysis.forks import claims, fork_faults, requests
from forktail.analysis.lag_effect import FIGURES
from forktail.analysis.mechanism import doubts, failed, not_proved
from forktail.analysis.quantity import count_text, share_text, size_text, time_text
from forktail.analysis.querylog import ERROR, IN_FLIGHT, LOST, UNSENT, conservation_faults
from forktail.analysis.result import Result
from forktail.analysis.run import number, section
from forktail.analysis.saturation import Saturation
from forktail.analysis.window import Snapshot

FORK_TOLERANCE = 0.10
FORK_TOLERANCE_NS, FORK_TOLERANCE_EMULATED_NS = 100_000, 2_500_000
"""What the server does between its two looks at the clock besides the kernel's fork takes 1.4 to 2.2 ms under
emulation, whatever the size (docs/lab.md)."""
RATE_WARNING, RATE_INVALID = 0.001, 0.01
LAG_INVALID_NS, LAG_INVALID_EMULATED_NS = 1_000_000, 5_000_000
"""The wider bound is for normal queries under emulation, whose times are no result anyway: there an idle guest's wakeup
passes through the host's scheduler (docs/lab.md)."""
UNSTAMPED_SHARE = 0.01
AMBIGUOUS_SHARE = 0.01
FEW_QUERIES = 1000
WEAK_LABELS = ("approximate", "per VMA")
"""Labels of probes that tell when something happened, but not exactly how often."""
TABLE_SPAN = 2 * 2**20
"""What one last-level page table maps."""


@dataclass(frozen=True)
class Verdict:
    """Reasons make the run invalid; warnings do not. Each is a sentence with its numbers."""

    reasons: list[str]
    warnings: list[str]


def judge(result: Result) -> Verdict:
    """Judge a run by every rule, so that all its faults are told at once."""
    reasons = [
        *_forks(result),
        *not_proved(result),
        *failed(result),
        *_losses(result),
        *_fork_against_info(result),
        *_save_failed(result),
        *window_faults(result),
        *(_closed_loop(result, result.run.closed) if result.run.closed else _open_loop(result)),
    ]
    warnings = [
        *(str(text) for text in result.run.manifest.get("warnings") or []),
        *_cut(result),
        *doubts(result),
        *_weak_probes(result),
        *_unpublished(result),
        *_lock_in_fork(result),
        *(_closed_loop_doubts(result, result.run.closed) if result.run.closed else _open_loop_doubts(result)),
        *_too_many_interruptions(result),
    ]
    return Verdict(reasons, warnings)


def _open_loop(result: Result) -> Iterator[str]:
    yield from _queries(result)
    yield from _rate(result, RATE_INVALID, float("inf"))
    yield from _late(result)
    yield from overload(result)


def _open_loop_doubts(result: Result) -> Iterator[str]:
    yield from _warmup_faults(result)
    yield from _rate(result, RATE_WARNING, RATE_INVALID)
    yield from _withheld(result)
    yield from _read_late(result)
    yield from _clocks_apart(result)
    yield from _few(result)
    yield from _near_saturation(result)


def _clocks_apart(result: Result) -> Iterator[str]:
    clock = result.run.clock
    ambiguous = int((result.classes == AMBIGUOUS).sum())
    if clock and ambiguous > AMBIGUOUS_SHARE * len(result.sorted_ns[SNAPSHOT]):
        yield (
            f"The clock of the load's host is known to {time_text(clock.error_ns)} only, so {count_text(ambiguous)} "
            "queries near a window's edges are in no class: bring the hosts nearer, or keep their network idle."
        )


def _closed_loop(result: Result, closed: ClosedLoad) -> Iterator[str]:
    """What makes a closed loop's figures false. That they lack what was due and not sent is no fault of a run."""
    if closed.errors:
        yield f"{count_text(closed.errors)} queries got an error for a reply, so the true tail is not known."
    if closed.lost:
        yield f"{count_text(closed.lost)} connections broke, and with them an unknown number of queries."
    told = int(closed.counts.sum())
    if told != closed.completed:
        yield (
            f"Queries are not accounted for: {closed.generator} tells {count_text(closed.completed)} of the whole run, "
            f"and {count_text(told)} of its intervals together."
        )
    for name in (SNAPSHOT, NORMAL):
        if result.snapshots and not closed.counts[result.interval_classes == name].sum():
            yield f"The {CLASSES[name]} class is empty: none of its queries was answered."


def _closed_loop_doubts(result: Result, closed: ClosedLoad) -> Iterator[str]:
    yield (
        f"{closed.generator} is a closed loop, which omits the queries that a stall kept it from sending, and tells "
        "nothing of its own lateness: a pause of the generator is a slow answer of the server's here."
    )
    misses = number(result.run.load, "misses")
    if misses:
        yield f"{count_text(misses)} GETs found no key, though all keys that were asked for had been filled in."
    wanted, sent = number(result.run.load, "rate_wanted"), number(result.run.load, "rate_sent")
    if wanted and sent is not None and sent < (1 - RATE_INVALID) * wanted:
        yield (
            f"{count_text(sent)} instead of {count_text(wanted)} queries a second were sent: a closed loop does not "
            "send what it could not send in time, and its latencies do not show it."
        )


def _forks(result: Result) -> Iterator[str]:
    run = result.run
    asked = requests(run)
    if not result.snapshots:
        used = section(section(run.probe, "probes"), "fork").get("probe")
        yield f"No fork of the server (pid {run.events.server}) was seen" + (
            "." if used else ", as no probe for forks could be attached: `forktail doctor` tells why."
        )
    elif None in (answered := claims(asked, result.snapshots)):
        yield (
            f"{len(asked)} snapshots were asked for, but only {len(asked) - answered.count(None)} forks of the "
            "server were seen."
        )
    if result.snapshots:
        yield from fork_faults(run, result.snapshots)
    for place, fork in enumerate(result.snapshots, start=1):
        if fork.truncated:
            limit = " when its time limit stopped it" if run.manifest.get("truncated") else ""
            yield (
                f"The window of snapshot {place} was still open after {time_text(fork.duration_ns)}, at the end of the "
                f"run{limit}: the end of child {fork.child} was never seen."
            )
    if run.manifest.get("truncated") and not any(fork.truncated for fork in result.snapshots):
        yield "The run was stopped by its time limit before its timeline was over."
    boots = {str(document["boot_id"]) for document in (run.manifest, run.probe) if document.get("boot_id")}
    if len(boots) > 1:
        yield "The probe's events and the queries are of different boots of the host, so their clocks do not agree."


def _losses(result: Result) -> Iterator[str]:
    run = result.run
    counts = section(run.trailer, "events")
    dropped, emitted = number(counts, "dropped"), number(counts, "emitted")
    if dropped is None or emitted is None:
        yield "The probe left no trailer, so nobody knows how many kernel events were lost."
        return
    if dropped:
        yield f"{count_text(dropped)} of {count_text(dropped + emitted)} kernel events were dropped by the ring buffer."
    elif emitted != len(run.events.events):
        yield (
            f"The probe emitted {count_text(emitted)} kernel events, but its log holds "
            f"{count_text(len(run.events.events))}."
        )
    missing = sum(run.events.gaps.values())
    if missing and missing > dropped:
        cpus = ", ".join(str(cpu) for cpu in sorted(run.events.gaps))
        yield f"{count_text(missing)} kernel events are missing by the sequence numbers of CPU {cpus}."


def _fork_against_info(result: Result) -> Iterator[str]:
    told_us = number(section(result.run.manifest, "info"), "latest_fork_usec")
    if told_us is None or not result.snapshots or not result.snapshots[-1].measured or _clock_has_a_lock(result):
        return
    fork, told_ns = result.snapshots[-1], round(told_us * 1000)
    held_ns = _held_after(result, fork, fork.fork_start_ns + told_ns)
    apart = abs(told_ns - fork.fork_ns - held_ns)
    bound = FORK_TOLERANCE_EMULATED_NS if result.run.emulation else FORK_TOLERANCE_NS
    if apart > bound and apart > FORK_TOLERANCE * max(fork.fork_ns + held_ns, told_ns):
        after = f" and a wait of {time_text(held_ns)} right after it" if held_ns else ""
        yield (
            f"The probe measured a fork of {time_text(fork.fork_ns)}{after}, but the server's latest_fork_usec says "
            f"{time_text(told_ns)}: they are {time_text(apart)} apart."
        )


def _held_after(result: Result, fork: Snapshot, end_ns: int) -> int:
    """The server's stalls between the end of its fork and `end_ns`, ns.

    Redis stops its clock when it runs again, so a wait for the CPU that its child has taken is in latest_fork_usec.
    """
    if end_ns <= fork.fork_end_ns:
        return 0
    stalls = Stalls(result.run.events, frozenset((fork.thread,)))
    edges = np.array([fork.fork_end_ns, end_ns], dtype=np.int64)
    segments = stalls.segment(edges)
    return sum(int(np.diff(stalls.elapsed(kind, edges, segments))[0]) for kind in range(len(STALLS)))


def _clock_has_a_lock(result: Result) -> bool:
    """Whether latest_fork_usec is longer than the fork for a reason of the engine's own.

    KeyDB starts that clock before it takes the lock that keeps its other threads from working while it forks.
    """
    told_us = number(section(result.run.manifest, "info"), "latest_fork_usec")
    return result.run.threads > 1 and bool(result.snapshots) and (told_us or 0) * 1000 > result.snapshots[-1].fork_ns


def _lock_in_fork(result: Result) -> Iterator[str]:
    told_us = number(section(result.run.manifest, "info"), "latest_fork_usec")
    if told_us is None or not _clock_has_a_lock(result):
        return
    more_ns = round(told_us * 1000) - result.snapshots[-1].fork_ns
    if more_ns > FORK_TOLERANCE_NS and more_ns > FORK_TOLERANCE * told_us * 1000:
        yield (
            f"latest_fork_usec is {time_text(more_ns)} longer than the fork that the probe measured: KeyDB's clock has "
            "in it how long it waited for its other threads to let it fork, so that the fork is not cross-checked."
        )


def _save_failed(result: Result) -> Iterator[str]:
    info = section(result.run.manifest, "info")
    status = info.get("rdb_last_bgsave_status")
    # A child that was killed is told with the reason.
    if status is not None and status != "ok" and not any(fork.killed for fork in result.snapshots[-1:]):
        yield f"The snapshot failed: the server's rdb_last_bgsave_status is {status!r}."


def _queries(result: Result) -> Iterator[str]:
    queries = result.run.queries
    by_status = np.bincount(queries.status[result.classes != WARMUP], minlength=UNSENT + 1)
    fates = (
        (ERROR, "got an error for a reply"),
        (LOST, "were lost with their connection"),
        (IN_FLIGHT, "were still without a reply at the end of the run"),
        (UNSENT, "were due but never sent"),
    )
    for status, fate in fates:
        if by_status[status]:
            codes = section(result.run.load, "errors_by_code") if status == ERROR else {}
            named = f" ({', '.join(f'{code}: {codes[code]}' for code in sorted(codes))})" if codes else ""
            yield (
                f"{count_text(by_status[status])} of {count_text(by_status.sum())} measured queries {fate}{named}, so "
                "the true tail is not known."
            )
    faults = conservation_faults(queries, result.run.load)
    if faults:
        yield f"Queries are not accounted for: {'; '.join(faults)}."
    for name in (SNAPSHOT, NORMAL):
        if result.snapshots and not len(result.sorted_ns[name]):
            yield f"The {CLASSES[name]} class is empty: none of its queries was answered."


def _rate(result: Result, bound: float, upper: float) -> Iterator[str]:
    """Sent against intended: chance moves the arrivals of a Poisson process, but not the difference of the two."""
    error = number(result.run.load, "rate_error")
    if error is not None and bound < abs(error) <= upper:
        intended, sent = number(result.run.load, "rate_intended"), number(result.run.load, "rate_sent")
        rates = f" ({count_text(sent)} instead of {count_text(intended)} a second)" if intended and sent else ""
        yield f"The load was {share_text(abs(error))} off its schedule{rates}; the bound is {share_text(bound)}."


def _late(result: Result) -> Iterator[str]:
    """A class whose p99 is the generator's has nothing to say."""
    for name in (NORMAL, SNAPSHOT):
        effect = result.lag_effects[name].get("p99")
        bound = LAG_INVALID_EMULATED_NS if result.run.emulation and name == NORMAL else LAG_INVALID_NS
        if effect and effect.withheld and effect.owed_ns > bound:
            yield f"The generator was late: of the p99 of {CLASSES[name]} queries {effect.reason}."


def _withheld(result: Result) -> Iterator[str]:
    for name in (NORMAL, SNAPSHOT):
        figures = [
            f"{'the maximum' if figure == 'max' else f'p{FIGURES[figure]}'} "
            f"({time_text(effect.owed_ns)} of {time_text(effect.figure_ns)})"
            for figure, effect in result.lag_effects[name].items()
            if effect.withheld
        ]
        if figures:
            yield (
                f"Figures of {CLASSES[name]} queries are withheld, because the generator's own lateness is so much of "
                f"them: {', '.join(figures)}."
            )


def overload(result: Result) -> Iterator[str]:
    """Why the server could not serve the load, apart from any snapshot."""
    found = result.saturation
    if found is None:
        return
    if found.falls_behind and found.completed_per_s is not None and found.arrived_per_s is not None:
        yield (
            f"The server was overloaded without a snapshot: it answered {count_text(found.completed_per_s)} of "
            f"{count_text(found.arrived_per_s)} normal queries a second, and their time from sending to reply grew by "
            f"{time_text(found.grew_ns or 0)} in {time_text(found.stretch_ns)}. Use a lower `load.rate`."
        )
    elif found.queues_hopelessly:
        yield f"The server was overloaded without a snapshot: {_queueing(found)} Use a lower `load.rate`."


def _near_saturation(result: Result) -> Iterator[str]:
    found = result.saturation
    if found is not None and found.queues and not (found.falls_behind or found.queues_hopelessly):
        yield f"The server is close to saturation without a snapshot: {_queueing(found)}"


def _queueing(found: Saturation) -> str:
    return (
        f"normal queries take {time_text(found.base_ns)} from sending to reply (median), and "
        f"{time_text(found.unloaded_ns or 0)} when they meet no other, so most of that is queueing."
    )


def _read_late(result: Result) -> Iterator[str]:
    """Replies whose arrival the kernel did not stamp, so that a late reading is in their latencies."""
    queries = result.run.queries
    measured = (queries.status <= ERROR) & (result.classes != WARMUP)
    unstamped = int((measured & ~queries.stamped).sum())
    if unstamped > UNSTAMPED_SHARE * measured.sum():
        yield (
            f"{count_text(unstamped)} of {count_text(measured.sum())} replies have no receive timestamp of the kernel, "
            "so that the generator's delay in reading them counts as the server's."
        )
    steps = number(result.run.load, "clock_steps")
    if steps:
        yield (
            f"The time of day was set {count_text(steps)} times during the load, and receive timestamps near that are "
            "not exact: keep time synchronisation from stepping the clock."
        )


def _cut(result: Result) -> Iterator[str]:
    queries, closed = result.run.queries, result.run.closed
    if not len(queries) and closed is None:
        return
    last = closed.end_ns if closed else int(queries.intended_ns[-1])
    # The window's last moments may fall between two queries.
    slack = closed.error_ns if closed else round(10e9 / queries.rate) if queries.rate > 0 else 0
    for place, fork in enumerate(result.snapshots, start=1):
        if not fork.truncated and fork.end_ns > last + slack:
            yield (
                f"The load ended {time_text(fork.end_ns - last)} before the window of snapshot {place} closed: its "
                f"class holds the queries of the first {time_text(max(last - fork.start_ns, 0))} only."
            )


def _weak_probes(result: Result) -> Iterator[str]:
    unmatched = section(result.run.trailer, "unmatched")
    for probe, missing in sorted(unmatched.items()):
        if isinstance(missing, int) and missing:
            yield f"The probe {probe} lost {missing} returns: what it counts is too few by as many."
    probes = section(result.run.probe, "probes")
    for measurement in sorted(probes):
        label = section(probes, measurement).get("label")
        if label in WEAK_LABELS:
            yield f"The measurement {measurement} is {label}, as its better probes could not be attached."


def _unpublished(result: Result) -> Iterator[str]:
    info = section(result.run.manifest, "info")
    for name in ("latest_fork_usec", "rdb_last_bgsave_status", "rdb_last_bgsave_time_sec"):
        if info.get(name) is None:
            yield f"The server's INFO had no {name}, so the probe was not cross-checked by it."


def _warmup_faults(result: Result) -> Iterator[str]:
    faulty = int(((result.run.queries.status != 0) & (result.classes == WARMUP)).sum())
    if faulty:
        yield f"{count_text(faulty)} queries of the warm-up failed; they are in no class."


def _few(result: Result) -> Iterator[str]:
    for name in (SNAPSHOT, NORMAL):
        count = len(result.sorted_ns[name])
        if 0 < count < FEW_QUERIES:
            yield (
                f"The {CLASSES[name]} class has only {count} queries: its p99.9 is its maximum or nearly so, and "
                "unreliable."
            )


def _too_many_interruptions(result: Result) -> Iterator[str]:
    """On-demand fork copies each table at most once a snapshot, so more copies than tables are miscounted."""
    resident = number(section(result.run.server, "before"), "rss_bytes")
    if not resident or not result.snapshots:
        return
    # Sparse tables map less than their whole span.
    bound = 2 * resident / TABLE_SPAN * len(result.snapshots) + 64
    if len(result.interruptions) > bound:
        yield (
            f"{count_text(len(result.interruptions))} interruptions are more than the page tables of "
            f"{size_text(resident)} in memory: the probe counts something else."
        )

# SPDX-License-Identifier: Apache-2.0
"""The answer to "why is the tail slow?", in words."""

from __future__ import annotations

import numpy as np

from forktail.analysis.attribute import CAUSES, DELAYS, PARTS
from forktail.analysis.classify import NORMAL, SNAPSHOT
from forktail.analysis.closedload import ClosedLoad
from forktail.analysis.mechanism import UNKNOWN, mechanism_name, terms
from forktail.analysis.quantity import share_text, significant, time_text
from forktail.analysis.result import BANDS, Result, Tail

_NAMES = {
    "client_lag": "the load generator's own lateness",
    "run_queue": "waiting for a CPU",
    "blocked": "the server blocked in the kernel (disk, file system or lock)",
    "cow_fault": "copy-on-write faults",
    "unexplained": "nothing that the probe saw",
}
_NOTABLE = 1.2
"""A p99 less than this many times the normal one is told as unchanged."""
_NEARLY_ALL, _WORTH_TELLING = 0.85, 0.10
"""A cause of this share is the only one told; causes of less than the other share are left to the table."""


def tail_parts(tail: Tail) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The summed parts of the slowest 1 % of snapshot queries, shape (len(PARTS),), ns."""
    summed: np.ndarray[tuple[int], np.dtype[np.int64]] = tail.parts_ns[BANDS.index("99") + 1 :].sum(axis=0)
    return summed


def excess_shares(parts_ns: np.ndarray[tuple[int], np.dtype[np.int64]]) -> dict[str, float]:
    """The share of each cause in all time that is not service, a delay together with the queueing behind it."""
    total = int(parts_ns.sum()) - int(parts_ns[PARTS.index("service")])
    shares = {}
    for cause in CAUSES:
        if cause != "service":
            own = parts_ns[PARTS.index(cause)] + (parts_ns[PARTS.index(f"behind_{cause}")] if cause in DELAYS else 0)
            shares[cause] = int(own) / total if total else 0.0
    return shares


def answer(result: Result) -> str:
    """One or two sentences on what the snapshot did to p99 and what the slowest 1 % waited for."""
    sentences = [_answer(result)]
    if mechanism_name(result.run) == UNKNOWN:
        sentences.append("This kernel's fork mechanism is unknown, so the result is of no mechanism in particular.")
    return " ".join(sentences)


def _answer(result: Result) -> str:
    tail = result.tail
    if not result.snapshots:
        return "No fork was seen, so this run cannot say what a snapshot does to latency."
    if result.run.closed is not None:
        return _of_intervals(result, result.run.closed)
    if tail is None:
        return "No query was answered within the snapshot's window, so there is no tail to explain."
    return " ".join([_change(result), _cause(result, tail), _slowest(result, tail), *_bounds(result)])


def _bounds(result: Result) -> list[str]:
    if result.run.threads == 1:
        return []
    sentence = (
        f"The server has {result.run.threads} threads that serve, and which of them served a query is not known: a "
        "stall of any is counted as one of all, so every share but the fork's is an upper bound."
    )
    return [sentence]


def _of_intervals(result: Result, closed: ClosedLoad) -> str:
    """What a closed loop can say."""
    told = {name: closed.latency_us(result.interval_classes == name) for name in (NORMAL, SNAPSHOT)}
    sentences = []
    for name, what in (("p99", "p99 is"), ("max", "the slowest query took")):
        usual, caught = told[NORMAL][name], told[SNAPSHOT][name]
        if usual is not None and caught is not None:
            sentences.append(f"{what} {time_text(caught * 1000)}, and {time_text(usual * 1000)} otherwise")
    if not sentences:
        return f"{closed.generator} answered no query in the intervals that the snapshot's window touches."
    return (
        f"In the intervals that the snapshot's window touches, {'; '.join(sentences)}. {closed.generator} is a closed "
        "loop: while the server answered no query it sent nothing, so that the queries which would have waited are "
        "missing from these figures (coordinated omission), all percentiles are too low, and nothing tells what the "
        "slow ones waited for."
    )


def _change(result: Result) -> str:
    effects = result.lag_effects
    late = effects[SNAPSHOT]["p99"]
    if late.withheld:
        return f"Snapshot p99 is withheld: {late.reason}."
    p99 = late.figure_ns
    if not effects[NORMAL] or effects[NORMAL]["p99"].withheld:
        return f"Snapshot p99 is {time_text(p99)}."
    usual = effects[NORMAL]["p99"].figure_ns
    times = p99 / max(usual, 1)
    if times >= _NOTABLE:
        return (
            f"While the snapshot is taken, p99 rises {significant(times)} times, from {time_text(usual)} to "
            f"{time_text(p99)}."
        )
    raises = "hardly raises" if p99 > usual else "does not raise"
    return f"The snapshot {raises} p99: it is {time_text(p99)} while it is taken, and {time_text(usual)} otherwise."


def _cause(result: Result, tail: Tail) -> str:
    shares = excess_shares(tail_parts(tail))
    by_share = sorted(shares, key=lambda cause: -shares[cause])
    if not any(shares.values()):
        return "The slowest 1 % of snapshot queries waited for nothing but their own service."
    leading = by_share[0]
    if shares[leading] >= _NEARLY_ALL:
        behind = " and the queueing behind it" if leading in DELAYS else ""
        return (
            f"{share_text(shares[leading])} of the excess latency of the slowest 1 % of snapshot queries is "
            f"{_named(leading, result)}{behind}."
        )
    told = [cause for cause in by_share if shares[cause] >= _WORTH_TELLING]
    terms = [f"{share_text(shares[cause])} is {_named(cause, result)}" for cause in told]
    listed = " and ".join(part for part in (", ".join(terms[:-1]), terms[-1]) if part)
    behind = ", each with the queueing behind it" if any(cause in DELAYS for cause in told) else ""
    return f"Of the excess latency of the slowest 1 % of snapshot queries {listed}{behind}."


def _named(cause: str, result: Result) -> str:
    if cause != "fork":
        return _name(cause, result)
    longest = max(fork.fork_ns for fork in result.snapshots)
    length = ("up to " if len(result.snapshots) > 1 else "") + time_text(longest)
    return f"fork ({length} during which the server answered no query)"


def _name(cause: str, result: Result) -> str:
    return terms(result.run).all if cause == "interruption" else _NAMES[cause]


def _slowest(result: Result, tail: Tail) -> str:
    parts = tail.slowest_parts[0]
    shares = excess_shares(parts)
    leading = max(shares, key=lambda cause: shares[cause])
    what = "the fork" if leading == "fork" else _name(leading, result)
    if leading in DELAYS:
        what += " and the queueing behind it"
    return f"The slowest one took {time_text(int(parts.sum()))}, {share_text(shares[leading])} of its excess by {what}."

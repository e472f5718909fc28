# SPDX-License-Identifier: Apache-2.0
"""The fork mechanism of a run: what it is called, and the proof that it was the one that was used."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass

from forktail import flavour
from forktail.analysis.quantity import count_text, time_text
from forktail.analysis.result import Result
from forktail.analysis.run import Run, number, section
from forktail.analysis.window import Snapshot

DEFAULT, ODF, ASYNC_FORK, UNKNOWN = flavour.DEFAULT, flavour.ODF, flavour.ASYNC_FORK, flavour.UNKNOWN

COPY_PER_TABLE_NS, COPY_PER_TABLE_EMULATED_NS = 10_000, 50_000
"""A copied last-level table costs 17 us and more (P, section 3.1: 70 ms for 4096 tables), a shared or marked one
well under one. Emulated it is 150 us and more against 2 to 4 (docs/lab.md)."""
TABLES_AT_LEAST = 64
"""Fewer tables tell no mechanism from another: the rest of fork outweighs them, and async-fork leaves fewer than 32
to nobody (async_fork.min_tables)."""
LEFT_AT_LEAST = 0.5
"""Of a store's page tables nearly all map plain anonymous memory, which async-fork leaves to the child."""

REASONS = ("unknown", "fork", "fault", "unmap", "mprotect", "mremap", "madvise", "split", "userfaultfd", "other")
"""Why the server copied a page table after fork, by the aux of an interruption (docs/formats.md)."""


@dataclass(frozen=True)
class Terms:
    """What an interruption is called where a mechanism makes it."""

    one: str
    behind: str
    all: str
    """In a sentence on what queries waited for."""


_COPIES = Terms("page-table interruption", "queueing behind interruptions", "page-table copies outside fork")
_TERMS = {
    DEFAULT: _COPIES,
    UNKNOWN: _COPIES,
    ODF: Terms("copy of a shared page table", "queueing behind such copies", "copies of shared page tables"),
    ASYNC_FORK: Terms(
        "proactive synchronization",
        "queueing behind synchronizations",
        "proactive synchronizations (page tables that the server copied before its child did)",
    ),
}


def kernel_flavour(run: Run) -> str:
    """The mechanism of the run's kernel: `default`, `odf`, `async-fork` or `unknown`."""
    return flavour.recorded_flavour(run.kernel.get("flavour"), str(run.kernel.get("release") or ""))


def mechanism_name(run: Run) -> str:
    """`default`, `odf` or `async-fork`: the fork that the server was to use; `unknown` where the kernel's is."""
    kernel = kernel_flavour(run)
    name = section(run.manifest, "mechanism").get("name") or kernel
    return str(name) if name in _TERMS and kernel != UNKNOWN else UNKNOWN


def copy_threads(run: Run) -> int | None:
    """How many threads copied page tables after fork; None where the mechanism has none."""
    threads = number(section(run.manifest, "mechanism"), "copy_threads")
    return None if threads is None else int(threads)


def threads_text(threads: int) -> str:
    """ "1 thread", "4 threads"."""
    return f"{threads} thread{'s' * (threads != 1)}"


def fork_text(run: Run) -> str:
    """The fork in a few words, as in "default fork" and "async-fork, 4 threads"."""
    name, threads = mechanism_name(run), copy_threads(run)
    return _fork(name) if threads is None else f"{_fork(name)}, {threads_text(threads)}"


def _fork(name: str) -> str:
    if name == UNKNOWN:
        return "unknown fork mechanism"
    return name if name == ASYNC_FORK else f"{name} fork"


def terms(run: Run) -> Terms:
    """What this run's interruptions are called."""
    return _TERMS[mechanism_name(run)]


def page_tables(run: Run) -> int:
    """Last-level and other page tables of the server before the load; 0 where they are not known."""
    return round((number(section(run.server, "before"), "page_table_bytes") or 0) / 4096)


def flights_measured(run: Run) -> bool:
    """Whether a probe could see flights: on our kernels."""
    return bool(section(section(run.probe, "probes"), "flight").get("probe"))


def not_proved(result: Result) -> Iterator[str]:
    """Why the fork used was not the fork meant: its knob read back, its flight, and its cost by table in range."""
    mechanism = section(result.run.manifest, "mechanism")
    name = mechanism_name(result.run)
    if mechanism.get("read_back") != mechanism.get("wanted"):
        yield (
            f"{mechanism.get('knob')} held {mechanism.get('read_back')!r} and not {mechanism.get('wanted')!r} at the "
            f"end of the run: {_fork(name)} was not in use."
        )
    for place, fork in enumerate(result.snapshots, start=1):
        fault = _flight_fault(result.run, fork, name) or _cost_fault(result.run, fork, name)
        if fault:
            yield f"Fork {place} {fault}"


def _flight_fault(run: Run, fork: Snapshot, name: str) -> str | None:
    if not flights_measured(run):
        return None
    flight = fork.flight
    if name == UNKNOWN:
        return None
    if name != ASYNC_FORK:
        if flight and flight.child:
            return f"left {count_text(flight.copied)} page tables to its child, as async-fork does: it was not {name}."
        return None
    if flight is None:
        return (
            "was not seen to bring its page tables to the child, nor to fail: nothing proves that async-fork was used."
        )
    # What an aborted flight left uncopied is not told, so its share proves nothing.
    if page_tables(run) < TABLES_AT_LEAST or (flight.child and flight.aborted):
        return None
    if not flight.child:
        return f"copied all of its {count_text(flight.tables)} page tables itself: async-fork was not used."
    if flight.copied < LEFT_AT_LEAST * flight.tables:
        return (
            f"left {count_text(flight.copied)} of {count_text(flight.tables)} page tables to its child and copied the "
            "others itself: this was not async-fork."
        )
    return None


def _cost_fault(run: Run, fork: Snapshot, name: str) -> str | None:
    tables, took_ns = page_tables(run), fork.page_table_copy_ns
    bound = COPY_PER_TABLE_EMULATED_NS if run.emulation else COPY_PER_TABLE_NS
    if name in (DEFAULT, UNKNOWN) or tables < TABLES_AT_LEAST or took_ns is None or took_ns <= tables * bound:
        return None
    return (
        f"took {time_text(took_ns)} for {count_text(tables)} page tables, {time_text(took_ns / tables)} each: it "
        f"copied them as the default fork does, and {_fork(name)} was not used."
    )


def failed(result: Result) -> Iterator[str]:
    """Each snapshot whose child was killed, and why."""
    for place, fork in enumerate(result.snapshots, start=1):
        if not fork.killed:
            continue
        flight = fork.flight
        how = f"killed by {_signal_name(fork.signal)}" if fork.signal else "killed"
        if flight and flight.aborted:
            yield (
                f"Snapshot {place} failed: async-fork gave its child up {time_text(flight.duration_ns)} after it "
                f"began, with {count_text(flight.copied)} page tables copied, and the child was {how}. Memory for a "
                "page table was not to be had, unless somebody else killed the child: see the kernel's log."
            )
        else:
            yield f"Snapshot {place} failed: its child was {how}."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def doubts(result: Result) -> Iterator[str]:
    """What leaves the mechanism less than proved."""
    if kernel_flavour(result.run) == UNKNOWN and result.run.kernel.get("flavour") != UNKNOWN:
        # The run itself says so where it knew.
        yield flavour.unknown_warning(str(result.run.kernel.get("release")), [])
    if mechanism_name(result.run) != ASYNC_FORK:
        return
    if not flights_measured(result.run):
        yield "No probe could see what async-fork left to the child: that it was used is known by fork's time alone."
    tables = page_tables(result.run)
    for place, fork in enumerate(result.snapshots, start=1):
        if tables < TABLES_AT_LEAST and fork.flight and not fork.flight.child:
            yield (
                f"Fork {place} was the default fork: the server has only {count_text(tables)} page tables, and "
                "async-fork leaves so few to nobody."
            )

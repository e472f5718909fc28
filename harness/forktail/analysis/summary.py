# SPDX-License-Identifier: Apache-2.0
"""The summary of a run, `summary.json`: the numbers that reports, comparisons and gates read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from forktail.analysis.answer import answer, excess_shares, tail_parts
from forktail.analysis.attribute import CAUSES, PARTS
from forktail.analysis.classify import AMBIGUOUS, ARMED, CLASSES, NORMAL, SNAPSHOT, WARMUP
from forktail.analysis.closedload import ClosedLoad
from forktail.analysis.eventlog import FAULT_PAGE_PRESENT, FAULT_PRESENCE_KNOWN, Kind
from forktail.analysis.mechanism import REASONS, copy_threads, fork_text, kernel_flavour, mechanism_name
from forktail.analysis.quantity import size_text, us
from forktail.analysis.querylog import ERROR, OK, OPERATIONS, counts
from forktail.analysis.result import BANDS, Result, Tail, sent_lags
from forktail.analysis.run import Document, number, section
from forktail.analysis.statistics import PERCENTS, log2_histogram, percentiles, rank
from forktail.analysis.validity import judge, overload
from forktail.analysis.window import Snapshot
from forktail.rundir import SUMMARY_SCHEMA

_PERCENTS = {f"{name}_us": percent for name, percent in PERCENTS.items()} | {"max_us": "100"}


@dataclass(frozen=True)
class Summary:
    """The summary as it is written; `document` holds nothing but JSON's types."""

    document: dict[str, Any]

    @property
    def valid(self) -> bool:
        return bool(self.document["valid"])

    @property
    def reasons(self) -> list[str]:
        return list(self.document["reasons"])

    @property
    def warnings(self) -> list[str]:
        return list(self.document["warnings"])


def summarise(result: Result) -> Summary:
    """Every number of a run in one document; times are microseconds unless their name says otherwise."""
    run, verdict = result.run, judge(result)
    manifest = run.manifest
    first = result.snapshots[0] if result.snapshots else None
    interruptions_ns = int(result.interruptions["duration"].sum())
    fork_ns = sum(fork.fork_ns for fork in result.snapshots)
    payload = number(run.server, "payload_bytes")
    return Summary(
        {
            "schema": SUMMARY_SCHEMA,
            "name": manifest.get("name"),
            "forktail": manifest.get("forktail"),
            "started_at": manifest.get("started_at"),
            "valid": not verdict.reasons,
            "reasons": verdict.reasons,
            "warnings": verdict.warnings,
            "emulation": run.emulation,
            "answer": " ".join((*overload(result), answer(result))),
            "kernel": {"flavour": kernel_flavour(run), "release": run.kernel.get("release")},
            "mechanism": _mechanism(result),
            "without_effect": [str(text) for text in manifest.get("without_effect") or []],
            "engine": {"name": run.server.get("engine"), "version": run.server.get("version")},
            "size": {"payload_bytes": payload, "text": size_text(payload) if payload else None},
            "fork": _fork(first),
            "window": _window(first, result),
            "flight": _flight(first),
            "snapshots": [
                {"fork": _fork(fork), "flight": _flight(fork), "window": _window(fork, result)}
                for fork in result.snapshots
            ],
            "info": _info(result),
            "queries": _queries(result) if run.closed is None else _intervals(result, run.closed),
            "interruptions": {
                "count": len(result.interruptions),
                "total_us": us(interruptions_ns),
                "buckets": log2_histogram(result.interruptions["duration"].astype(np.int64)),
                "reasons": _reasons(result),
            },
            "faults": _faults(result),
            "out_of_service_us": us(fork_ns + (interruptions_ns if run.threads == 1 else 0)),
            "out_of_service": _out_of_service(result, fork_ns, interruptions_ns),
            "saturation": _saturation(result),
            "load": _load(result) if run.closed is None else _closed_load(result, run.closed),
            "events": _events(result),
            "probes": {name: _probe(run.probe, name).get("probe") for name in _measurements(run.probe)},
            "probe_choice": {
                name: {
                    "label": _probe(run.probe, name).get("label"),
                    "rejected": _probe(run.probe, name).get("rejected"),
                }
                for name in _measurements(run.probe)
            },
            "server": dict(run.server),
            "attribution": _attribution(result, result.tail) if result.tail else None,
        }
    )


def _fork(fork: Snapshot | None) -> dict[str, Any]:
    copy_ns = fork.page_table_copy_ns if fork else None
    return {
        "duration_us": us(fork.fork_ns) if fork else None,
        "page_table_copy_us": us(copy_ns) if copy_ns is not None else None,
        "page_table_copy_share": round(copy_ns / fork.fork_ns, 6)
        if fork and copy_ns is not None and fork.fork_ns
        else None,
        "child": fork.child if fork else None,
    }


def _mechanism(result: Result) -> dict[str, Any]:
    told = section(result.run.manifest, "mechanism")
    return {
        "name": mechanism_name(result.run),
        "text": fork_text(result.run),
        "knob": told.get("knob"),
        "copy_threads": copy_threads(result.run),
        "note": told.get("note"),
    }


def _flight(fork: Snapshot | None) -> dict[str, Any] | None:
    flight = fork.flight if fork else None
    if flight is None:
        return None
    duration_us = us(flight.duration_ns)
    return {
        "left_to_child": flight.child != 0,
        "duration_us": duration_us,
        "copy_us": duration_us if flight.child and not flight.aborted else None,
        "copied_tables": flight.copied,
        "tables": flight.tables,
        "aborted": flight.aborted,
    }


def _reasons(result: Result) -> list[dict[str, Any]]:
    """The interruptions by why the server copied a page table, the longest in sum first; empty where nobody told."""
    found = []
    for number_of, name in enumerate(REASONS):
        durations = result.interruptions["duration"][result.interruptions["aux"] == number_of]
        if len(durations):
            found.append({"reason": name, "count": len(durations), "total_us": us(int(durations.sum()))})
    known = [one for one in found if one["reason"] != REASONS[0]]
    return sorted(found, key=lambda one: -float(one["total_us"])) if known else []


def _window(fork: Snapshot | None, result: Result) -> dict[str, Any]:
    closed = result.run.closed
    last = closed.end_ns if closed else int(result.run.queries.intended_ns[-1]) if len(result.run.queries) else None
    return {
        "start_ns": fork.start_ns if fork else None,
        "end_ns": fork.end_ns if fork else None,
        "duration_ms": round(fork.duration_ns / 1e6, 6) if fork else None,
        "truncated": fork.truncated if fork else None,
        "ended_by": fork.ended_by if fork else None,
        "load_covered_it": fork.end_ns <= last if fork and last is not None else None,
    }


def _info(result: Result) -> dict[str, Any]:
    told = section(result.run.manifest, "info")
    fork_us, saved_s = number(told, "latest_fork_usec"), number(told, "rdb_last_bgsave_time_sec")
    fork = result.snapshots[-1] if result.snapshots else None
    return {
        "latest_fork_usec": fork_us,
        "fork_difference": round(fork_us * 1000 / fork.fork_ns - 1, 6)
        if fork and fork.fork_ns and fork_us is not None
        else None,
        "rdb_last_bgsave_time_sec": saved_s,
        "window_difference_s": round(saved_s - (fork.end_ns - fork.fork_end_ns) / 1e9, 6)
        if fork and not fork.truncated and saved_s is not None
        else None,
        "rdb_last_cow_size": number(told, "rdb_last_cow_size"),
        "rdb_last_bgsave_status": told.get("rdb_last_bgsave_status"),
    }


def _class(result: Result, name: int) -> dict[str, Any]:
    latencies, lags = result.sorted_ns[name], result.sorted_lag_ns[name]
    effects = result.lag_effects[name]
    withheld = {figure: effect.reason for figure, effect in effects.items() if effect.withheld}
    figures = {
        f"{figure}_us": None if figure in withheld else us(effect.figure_ns) for figure, effect in effects.items()
    }
    return {
        "count": len(latencies),
        **(figures or dict.fromkeys(_PERCENTS)),
        "lag_p99_us": _from_sorted(lags, {"lag": "99"})["lag"],
        "lag_effect_us": {figure: us(effect.owed_ns) for figure, effect in effects.items()},
        "withheld": withheld,
    }


def _caught(result: Result) -> dict[str, Any]:
    """Normal queries that a fork caught: they arrived just before it and were still waiting when it began."""
    queries = result.run.queries
    normal = (result.classes == NORMAL) & (queries.status == OK)
    caught = np.zeros(len(queries), dtype=np.bool_)
    for fork in result.snapshots:
        before = slice(0, int(np.searchsorted(queries.intended_ns, fork.start_ns)))
        caught[before] |= queries.intended_ns[before] + queries.latency_ns[before] > fork.start_ns
    others = queries.latency_ns[normal & ~caught]
    return {
        "caught_by_fork": int((normal & caught).sum()),
        "max_of_others_us": us(int(others.max())) if len(others) else None,
    }


def _from_sorted(values: npt.NDArray[np.int64], percents: dict[str, str]) -> dict[str, float | None]:
    return {
        key: us(int(values[rank(len(values), percent) - 1])) if len(values) else None
        for key, percent in percents.items()
    }


def _faults(result: Result) -> dict[str, Any]:
    faults = result.run.events.of(Kind.FAULT)
    within = np.zeros(len(faults), dtype=np.bool_)
    for fork in result.snapshots:
        within |= (faults["start"] >= fork.start_ns) & (faults["start"] <= fork.end_ns)
    seen = faults[within]
    known = bool((seen["aux"] & FAULT_PRESENCE_KNOWN).all())
    return {
        "count": len(seen),
        "copy_on_write": int(np.count_nonzero(seen["aux"] & FAULT_PAGE_PRESENT)) if known else None,
        "total_us": us(int(seen["duration"].sum())),
    }


def _queries(result: Result) -> dict[str, Any]:
    return {
        CLASSES[NORMAL]: _class(result, NORMAL) | _caught(result),
        CLASSES[SNAPSHOT]: _class(result, SNAPSHOT),
        CLASSES[WARMUP]: {"count": int((result.classes == WARMUP).sum())},
        CLASSES[AMBIGUOUS]: {"count": int((result.classes == AMBIGUOUS).sum())},
        CLASSES[ARMED]: {"count": int((result.classes == ARMED).sum())},
        "whole_run": None,
    }


def _intervals(result: Result, closed: ClosedLoad) -> dict[str, Any]:
    """The classes of a closed loop's load: made of whole intervals, and null what it does not tell of them."""

    def of(name: int) -> dict[str, Any]:
        chosen = result.interval_classes == name
        return {
            "count": int(closed.counts[chosen].sum()),
            **{f"{key}_us": value for key, value in closed.latency_us(chosen).items()},
            "lag_p99_us": None,
            "lag_effect_us": None,
            "withheld": None,
            "intervals": int(chosen.sum()),
            "covers_ms": round(int((closed.ends_ns - closed.starts_ns)[chosen].sum()) / 1e6, 3),
        }

    return {
        CLASSES[NORMAL]: of(NORMAL) | {"caught_by_fork": None, "max_of_others_us": None},
        CLASSES[SNAPSHOT]: of(SNAPSHOT),
        CLASSES[WARMUP]: {"count": int(closed.counts[result.interval_classes == WARMUP].sum())},
        CLASSES[AMBIGUOUS]: {"count": 0},
        CLASSES[ARMED]: {"count": 0},
        "whole_run": {"count": closed.completed} | {f"{key}_us": value for key, value in closed.whole().items()},
    }


def _out_of_service(result: Result, fork_ns: int, interruptions_ns: int) -> dict[str, Any]:
    """Where several threads serve, fork stops them all, as each would need the lock that it holds; a page-table copy
    stops the thread that makes it, and others only where they want what that thread has locked."""
    alone = result.run.threads == 1
    return {
        "fork_us": us(fork_ns),
        "interruptions_us": us(interruptions_ns) if alone else 0.0,
        "one_thread_us": 0.0 if alone else us(interruptions_ns),
    }


def _saturation(result: Result) -> dict[str, Any] | None:
    found = result.saturation
    if found is None:
        return None
    return {
        "overloaded": found.falls_behind or found.queues_hopelessly,
        "arrived_per_s": _rounded(found.arrived_per_s),
        "completed_per_s": _rounded(found.completed_per_s),
        "growth_us_per_s": _rounded(found.growth_us_per_s),
        "base_us": us(found.base_ns),
        "unloaded_us": None if found.unloaded_ns is None else us(found.unloaded_ns),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _closed_load(result: Result, closed: ClosedLoad) -> dict[str, Any]:
    load = result.run.load
    unknown = ("intended", "sent", "in_flight", "unsent", "lag_p50_us", "lag_p99_us", "lag_p999_us", "lag_max_us",
               "read_delay_p99_us", "read_delay_max_us", "unstamped", "stamp_error_ns", "rate_intended")  # fmt: skip
    return {
        "generator": closed.generator,
        "version": closed.version,
        "host": None,
        "closed_loop": True,
        "text": result.run.load_text,
        "notes": closed.notes,
        **dict.fromkeys(unknown),
        "completed": closed.completed,
        "errors": closed.errors,
        "lost": closed.lost,
        "misses": number(load, "misses"),
        "rate_wanted": number(load, "rate_wanted"),
        "rate_sent": number(load, "rate_sent"),
        "rate_error": None,
        "connections": closed.connections,
        "cost": dict(section(load, "cost")),
        "percentiles_are": closed.percentiles_are,
        "interval_error_us": us(closed.error_ns),
    }


def _load(result: Result) -> dict[str, Any]:
    load = result.run.load
    lags = sent_lags(result)
    names = ("lag_p50_us", "lag_p99_us", "lag_p999_us", "lag_max_us")
    values: Sequence[float | None] = [None] * len(names)
    if len(lags):
        values = [us(value) for value in percentiles(lags, ("50", "99", "99.9", "100"))]
    return {
        "generator": "forktail-load",
        "version": result.run.manifest.get("forktail"),
        "host": _client(result),
        "closed_loop": False,
        "text": result.run.load_text,
        "notes": [],
        **counts(result.run.queries),
        "misses": int(result.run.queries.miss.sum()),
        **dict(zip(names, values, strict=True)),
        **_reading(result),
        "rate_wanted": number(load, "rate_wanted"),
        "rate_intended": number(load, "rate_intended"),
        "rate_sent": number(load, "rate_sent"),
        "rate_error": number(load, "rate_error"),
        "connections": result.run.queries.connections,
        "cost": dict(section(load, "cost")),
    }


def _reading(result: Result) -> dict[str, Any]:
    """How late the generator read replies, which is no part of any latency, and how many had no stamp."""
    queries = result.run.queries
    measured = (queries.status <= ERROR) & (result.classes != WARMUP)
    delays = queries.read_delay_ns[measured]
    p99, most = percentiles(delays, ("99", "100")) if len(delays) else (None, None)
    return {
        "read_delay_p99_us": None if p99 is None else us(p99),
        "read_delay_max_us": None if most is None else us(most),
        "unstamped": int((measured & ~queries.stamped).sum()),
        "stamp_error_ns": number(result.run.load, "stamp_error_ns"),
    }


def _client(result: Result) -> dict[str, Any] | None:
    """The host that sent the load, and how well its clock is known; None where that was the server's."""
    told, clock = result.run.client, result.run.clock
    if told is None or clock is None:
        return None
    return {
        **{name: told.get(name) for name in ("host", "address", "kernel", "cpu")},
        "pings": clock.pings,
        "round_trip_us": us(clock.round_trip_ns),
        "error_us": us(clock.error_ns),
        "drift_ppm": round(clock.drift * 1e6, 3),
    }


def _events(result: Result) -> dict[str, Any]:
    told = section(result.run.trailer, "events")
    return {
        **{name: number(told, name) for name in ("seen", "emitted", "dropped", "suppressed")},
        "records": len(result.run.events.events),
        "missing_by_sequence": sum(result.run.events.gaps.values()),
        "unmatched": dict(section(result.run.trailer, "unmatched")),
    }


def _measurements(probe: Document) -> list[str]:
    return list(section(probe, "probes"))


def _probe(probe: Document, name: str) -> Document:
    return section(section(probe, "probes"), name)


def _attribution(result: Result, tail: Tail) -> dict[str, Any]:
    parts = tail_parts(tail)
    first_of_tail = BANDS.index("99") + 1
    return {
        "base_us": us(result.base_ns),
        "threads": result.run.threads,
        "slowest_percent": 1,
        "threshold_us": us(tail.edges_ns[first_of_tail - 1]),
        "queries": int(tail.queries[first_of_tail:].sum()),
        "share": _shares(parts),
        "excess_share": {cause: round(share, 6) for cause, share in excess_shares(parts).items()},
        "dominant": {cause: int(count) for cause, count in zip(CAUSES, tail.dominant, strict=True)},
        "bands": [
            {
                "from_percent": float(low),
                "to_percent": float(high),
                "queries": int(queries),
                "mean_us": {
                    part: us(int(ns) / int(queries)) if queries else 0.0 for part, ns in zip(PARTS, row, strict=True)
                },
            }
            for low, high, queries, row in zip(("0", *BANDS), (*BANDS, "100"), tail.queries, tail.parts_ns, strict=True)
        ],
        "slowest": [
            _slow_query(result, int(index), row) for index, row in zip(tail.slowest, tail.slowest_parts, strict=True)
        ],
    }


def _shares(parts_ns: npt.NDArray[np.int64]) -> dict[str, float]:
    total = max(int(parts_ns.sum()), 1)
    return {part: round(int(ns) / total, 6) for part, ns in zip(PARTS, parts_ns, strict=True)}


def _slow_query(result: Result, index: int, parts_ns: npt.NDArray[np.int64]) -> dict[str, Any]:
    queries = result.run.queries
    intended = int(queries.intended_ns[index])
    since = [intended - fork.start_ns for fork in result.snapshots if fork.start_ns <= intended]
    return {
        "query": index,
        "intended_ns": intended,
        "after_fork_ms": round(min(since) / 1e6, 6) if since else None,
        "operation": OPERATIONS[queries.operation[index]],
        "connection": index % max(queries.connections, 1),
        "latency_us": us(int(queries.latency_ns[index])),
        "cause": CAUSES[result.cause[index]],
        "parts_us": {part: us(int(ns)) for part, ns in zip(PARTS, parts_ns, strict=True)},
    }

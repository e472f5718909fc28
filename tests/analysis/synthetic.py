# SPDX-License-Identifier: Apache-2.0
"""Run directories made by hand, byte by byte after docs/formats.md and independent of the readers."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

NEVER = (1 << 44) - 1
SERVER = 4242
CHILD = 4300

MS = 1_000_000
S = 1_000_000_000
ORIGIN = 1000 * S

FORK, PAGE_TABLE_COPY, INTERRUPTION, FAULT, RUN_QUEUE, CHILD_EXIT, WINDOW_END, RENAME, FLIGHT = range(1, 10)
FORK_UNMEASURED, BLOCKED = 10, 11


@dataclass
class Query:
    intended: int
    latency: int = 100_000
    lag: int = 5_000
    operation: int = 1
    status: int = 0
    miss: int = 0
    held: int = 0
    """The part of the lag in which the socket was full."""
    read_delay: int = 20_000
    stamped: int = 1


@dataclass
class Event:
    kind: int
    start: int
    duration: int = 0
    context: int = 0
    aux: int = 0
    tgid: int = SERVER
    tid: int = SERVER
    cpu: int = 0
    sequence: int | None = None


def query_log(queries: Iterable[Query], *, rate: float = 10_000.0, connections: int = 50) -> bytes:
    """`queries.bin` of these queries, which must come in the order of intended time."""
    records = [
        struct.pack(
            "<QQQQ",
            query.intended,
            query.lag | (query.held & 0xFFFFF) << 44,
            query.latency | (query.read_delay & 0xFFFFF) << 44,
            query.held >> 20
            | query.read_delay >> 20 << 24
            | query.operation << 48
            | query.status << 52
            | query.miss << 56
            | query.stamped << 57,
        )
        for query in queries
    ]
    header = struct.pack("<8sIIII", b"FTQLOG\0\0", 2, 64, 32, connections)
    header += struct.pack("<QQQdQ", len(records), ORIGIN, 1, rate, 0)
    return header + b"".join(records)


def event_log(events: Iterable[Event]) -> bytes:
    """`events.bin` of these events in the order of completion, numbered per CPU where they have no number yet."""
    numbers: dict[int, int] = {}
    records = []
    for event in sorted(events, key=lambda event: event.start + event.duration):
        number = numbers.get(event.cpu, 0) if event.sequence is None else event.sequence
        numbers[event.cpu] = number + 1
        records.append(
            struct.pack("<QQQQ", event.start, event.duration, event.context, event.aux)
            + struct.pack("<IIIHH", number, event.tgid, event.tid, event.cpu, event.kind)
        )
    header = struct.pack("<8sIIII", b"FTELOG\0\0", 2, 64, 48, SERVER)
    return header + struct.pack("<QQQQQ", len(records), ORIGIN - S, 0, 0, 0) + b"".join(records)


@dataclass
class RunDirectory:
    """A whole, valid run: load from ORIGIN on, warm-up of 0.1 s, a fork of 10 ms after 1 s, a window of 1 s."""

    queries: list[Query] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    manifest: dict[str, Any] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=dict)
    probe: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(
        default_factory=lambda: {"kernel": {"release": "6.1.0"}, "cpu": {"model": "<x&y>"}}
    )

    fork_start = ORIGIN + S
    fork_ns = 10 * MS
    window_end = ORIGIN + 2 * S
    warmup_end = ORIGIN + S // 10
    load_end = ORIGIN + 3 * S

    @classmethod
    def whole(cls, queries: list[Query] | None = None, extra_events: Iterable[Event] = ()) -> RunDirectory:
        if queries is None:
            queries = [Query(ORIGIN + index * MS // 2, 100_000 + index % 7 * 1000) for index in range(6000)]
            for query in queries:
                if cls.fork_start <= query.intended < cls.fork_start + cls.fork_ns:
                    query.latency += cls.fork_start + cls.fork_ns - query.intended
        events = [
            Event(PAGE_TABLE_COPY, cls.fork_start + 100_000, 9_700_000, 300),
            Event(FORK, cls.fork_start, cls.fork_ns, 0x1200011, CHILD),
            Event(RENAME, cls.window_end - 20 * MS, tgid=CHILD, tid=CHILD, cpu=1),
            Event(CHILD_EXIT, cls.window_end - 8 * MS, 0, CHILD, 0, CHILD, CHILD, 1),
            Event(WINDOW_END, cls.window_end, 0, CHILD),
            *extra_events,
        ]
        run = cls(queries, events)
        run.manifest = {
            "schema": "forktail.run/1",
            "name": "by-hand",
            "forktail": "0.1.0",
            "started_at": "2024-01-01T00:00:00+00:00",
            "boot_id": "boot-1",
            "clock": "CLOCK_MONOTONIC",
            "kernel": {"flavour": "default", "release": "6.1.0"},
            "marks": {
                "load_start_ns": ORIGIN,
                "warmup_end_ns": cls.warmup_end,
                "load_end_ns": cls.load_end,
                "snapshots": [
                    {
                        "trigger": "bgsave",
                        "requested_ns": cls.fork_start - MS,
                        "replied_ns": cls.fork_start + cls.fork_ns + MS,
                        "in_progress_seen_ns": cls.fork_start + cls.fork_ns + 2 * MS,
                        "finished_seen_ns": cls.window_end + 60 * MS,
                    }
                ],
            },
            "truncated": False,
            "server": {
                "engine": "redis",
                "version": "7.0.15",
                "pid": SERVER,
                "payload_bytes": 512 << 20,
                "before": {"used_memory": 600 << 20, "rss_bytes": 620 << 20, "page_table_bytes": 1300 << 10},
            },
            "info": {
                "latest_fork_usec": 10_020,
                "rdb_last_bgsave_time_sec": 1,
                "rdb_last_cow_size": 4 << 20,
                "rdb_last_bgsave_status": "ok",
            },
            "warnings": [],
        }
        run.load = {
            "schema": "forktail.load/2",
            "rate_wanted": 2000.0,
            "rate_intended": 2000.0,
            "rate_sent": 2000.1,
            "rate_error": 5e-5,
        }
        run.probe = {
            "schema": "forktail.events/1",
            "kernel": "6.1.0",
            "boot_id": "boot-1",
            "clock": "CLOCK_MONOTONIC",
            "pid": SERVER,
            "probes": {
                "fork": {"probe": "fexit kernel_clone", "label": "exact", "rejected": []},
                "interruption": {
                    "probe": "mm_page_alloc",
                    "label": "exact",
                    "rejected": [{"probe": "fexit copy_pmd_range", "errno": 2, "why": "no such function"}],
                },
            },
            "trailer": {"events": {"dropped": 0, "suppressed": 0}, "unmatched": {}},
        }
        return run

    def write(self, path: Path) -> Path:
        """Write the directory; counts that the test has not set itself are made to agree with the logs."""
        path.mkdir()
        fates = [0] * 5
        for query in self.queries:
            fates[query.status] += 1
        counted = {
            "intended": len(self.queries),
            "sent": len(self.queries) - fates[4],
            "completed": fates[0],
            "errors": fates[1],
            "lost": fates[2],
            "in_flight": fates[3],
            "unsent": fates[4],
            "conserved": True,
        }
        probe = json.loads(json.dumps(self.probe))
        if "events" in probe.get("trailer", {}):
            emitted = len(self.events)
            dropped = probe["trailer"]["events"]["dropped"]
            probe["trailer"]["events"] = {"seen": emitted + dropped, "emitted": emitted} | probe["trailer"]["events"]
        (path / "queries.bin").write_bytes(query_log(self.queries))
        (path / "events.bin").write_bytes(event_log(self.events))
        (path / "load.json").write_text(json.dumps(counted | self.load))
        (path / "probe.json").write_text(json.dumps(probe))
        (path / "environment.json").write_text(json.dumps(self.environment))
        (path / "info.jsonl").write_text('{"t_ns": 1, "used_memory": 2}\n')
        (path / "workload.toml").write_text('name = "by-hand"\n')
        (path / "run.json").write_text(json.dumps(self.manifest))
        return path


def flight_aux(copied: int, tables: int, *, aborted: bool = False) -> int:
    """The aux of a flight: who is still without tables, how many were copied, how many there were."""
    return int(aborted) | copied << 1 | tables << 32


def async_fork(
    *, fork_ns: int = 600_000, copy_ns: int = 60 * MS, copied: int = 300, tables: int = 325, threads: int = 1
) -> RunDirectory:
    """A valid run on an async-fork kernel: what fork leaves the child copies until 60 ms after, but for ten tables."""
    run = RunDirectory.whole(
        [Query(ORIGIN + index * MS // 2, 100_000 + index % 7 * 1000, 500) for index in range(6000)]
    )
    start = run.fork_start
    for event in run.events:
        if event.kind == PAGE_TABLE_COPY:
            event.duration = fork_ns - 200_000
        if event.kind == FORK:
            event.duration = fork_ns
    run.events.append(Event(FLIGHT, start + 100_000, copy_ns, CHILD, flight_aux(copied, tables), CHILD, CHILD, 1))
    # Nine faults and an munmap, a millisecond apart.
    syncs = [Event(INTERRUPTION, start + fork_ns + (1 + n) * MS, 25_000 + n * 1000, aux=2 + n // 9) for n in range(10)]
    run.events += syncs
    for query in run.queries:
        stalls = [(start, fork_ns), *((sync.start, sync.duration) for sync in syncs)]
        query.latency += sum(at + long - query.intended for at, long in stalls if at <= query.intended < at + long)
    run.manifest["info"]["latest_fork_usec"] = fork_ns // 1000 + 20
    run.manifest["kernel"] = {"flavour": "async-fork", "release": "6.1.170-forktail-async-fork"}
    run.manifest["mechanism"] = {
        "name": "async-fork",
        "knob": "/sys/fs/cgroup/forktail-1/memory.async_fork",
        "wanted": str(threads),
        "read_back": str(threads),
        "cgroup": "/sys/fs/cgroup/forktail-1",
        "copy_threads": threads,
        "note": None,
    }
    run.probe["probes"]["flight"] = {"probe": "raw_tp:fork_pt_start", "label": "exact", "rejected": []}
    run.probe["probes"]["interruption"] = {"probe": "fexit:copy_pmd_range", "label": "exact", "rejected": []}
    return run

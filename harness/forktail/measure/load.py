# SPDX-License-Identifier: Apache-2.0
"""forktail-load as the harness drives it: fill the server, then keep the open-loop schedule."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forktail import rundir
from forktail.measure.native import Native
from forktail.measure.server import ADDRESS
from forktail.workload import Workload

NAME = "forktail-load"
REALTIME_PRIORITY = 10
_FILL_SECONDS_PER_KEY = 1 / 2_000
_DRAIN_MS = 10_000
_IDLE_QUERIES = 64
"""Enough for a median of the time of a query that meets no other; they take some milliseconds."""
_LOG_SECONDS_PER_QUERY = 24 / 2_000_000
"""From another host its records come over the network, at 2 MB a second at least."""
_KEY_NAMES = {"memtier_benchmark": "memtier", "redis-benchmark": "redis-benchmark"}
"""Which keys a load of another generator will ask for."""


def _values(workload: Workload) -> list[str]:
    server = workload.server
    return [
        f"--keys={server.keys}",
        f"--value-bytes={server.value_size}",
        f"--value-entropy={server.value_entropy}",
        f"--seed={workload.load.seed}",
    ]


def fill(workload: Workload, port: int, on_keys: Callable[[int], None]) -> dict[str, Any]:
    """Prefill the server; returns `keys`, `seconds`, `keys_per_s`. `on_keys` is told how many are in."""
    result: dict[str, Any] = {}

    def on_event(event: dict[str, Any]) -> None:
        on_keys(event["keys"])
        if event["event"] == "end":
            result.update({key: event[key] for key in ("keys", "seconds", "keys_per_s")})

    names = f"--key-names={_KEY_NAMES.get(workload.load.generator, 'ours')}"
    native = Native(NAME, ["fill", f"--host={ADDRESS}", f"--port={port}", names, *_values(workload)], on_event)
    try:
        native.wait(60 + workload.server.keys * _FILL_SECONDS_PER_KEY)
    finally:
        native.end()
    return result


class Load:
    """The open-loop load at work: `start_ns` is the schedule's origin, `summary` what it said at its end."""

    def __init__(self, workload: Workload, port: int, directory: Path) -> None:
        load = workload.load
        run = workload.run
        self.start_ns = 0
        self._rate = load.rate
        self.completed = 0
        self.summary: dict[str, Any] = {}
        # The log must hold the longest run that can be: up to the limit, and the cool-down behind it.
        longest_ns = run.warm_up + run.limit + run.cool_down
        arguments = [
            f"--port={port}",
            *_values(workload),
            f"--rate={load.rate}",
            f"--queries={load.rate * longest_ns // 10**9 + 1}",
            f"--connections={load.clients}",
            f"--idle={_IDLE_QUERIES}",
            f"--arrivals={load.arrivals}",
            f"--distribution={load.keys}",
            f"--gaussian-mean={load.gaussian_mean}",
            f"--gaussian-sigma={load.gaussian_sigma}",
            f"--zipf-theta={load.zipf_theta}",
            f"--ratio={load.set_get}",
            f"--drain-ms={_DRAIN_MS}",
            f"--spin-us={load.spin // 1000}",
            f"--log={directory / rundir.QUERY_LOG}",
        ]
        if load.writes == "insert":
            arguments.append("--insert")
        if load.realtime:
            arguments.append(f"--fifo={REALTIME_PRIORITY}")
        if load.cpu >= 0:
            arguments.append(f"--cpu={load.cpu}")
        if load.host:
            bridge = [sys.executable, "-m", "forktail.measure.remote_load"]
            there = [f"--client={load.host}", f"--clock={directory / rundir.CLIENT}"]
            self.program = Native(NAME, [*there, *arguments], self._on_event, bridge)
        else:
            self.program = Native(NAME, ["run", f"--host={ADDRESS}", *arguments], self._on_event)

    def _on_event(self, event: dict[str, Any]) -> None:
        match event["event"]:
            case "start":
                self.start_ns = event["start_ns"]
            case "progress":
                self.completed = event["completed"]
            case "end":
                self.summary = {key: value for key, value in event.items() if key != "event"}

    def wait_until_started(self) -> None:
        """Wait for the schedule's origin; prefaulting the log of a long run takes seconds."""
        self.program.wait_for(lambda: self.start_ns > 0, "its first request", 60)

    def stop(self) -> dict[str, Any]:
        """Schedule nothing more, drain, and return the summary (docs/formats.md, `load.json`)."""
        self.program.say("stop")
        records = self._rate * (time.monotonic_ns() - self.start_ns) / 1e9
        self.program.wait(_DRAIN_MS / 1000 + 60 + records * _LOG_SECONDS_PER_QUERY)
        return self.summary

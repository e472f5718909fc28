# SPDX-License-Identifier: Apache-2.0
"""memtier_benchmark as the harness drives it, and what its JSON tells of a run."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from forktail.errors import RunFailed
from forktail.measure.clock import wall_ahead
from forktail.measure.peer import Peer, PeerProgram, ended_by, find_peer
from forktail.measure.server import ADDRESS, Server
from forktail.workload import MEMTIER_FIRST_KEY, Workload

NAME = "memtier_benchmark"
_RESULT = "memtier.json"
_PATTERNS = {"uniform": "R", "gaussian": "G", "zipf": "Z"}
_PERCENTILES = {"p50": "50", "p90": "90", "p99": "99", "p999": "99.9", "p9999": "99.99"}
_START_ERROR_NS = 5_000_000
"""Its connections begin their first second one after the other, and it tells that moment to the millisecond."""

NOTES = """\
Its figures have three significant digits, and those of the whole run have the warm-up in them.
It tells of each second how many queries were answered and how slow the slowest was. The percentiles that it prints \
for a second are those of one of its connections alone, so neither class has any.
A second that touches a window is the snapshot's, all of it: its class has queries of up to a second before the fork \
and after the child's end, by when they were answered.
Its values are its own: load.seed and server.value_entropy are those of the fill.
""".splitlines()


def find(workload: Workload) -> PeerProgram:
    """memtier_benchmark on this host."""
    return find_peer(
        workload,
        r"memtier_benchmark (?:v=)?([0-9]+(?:\.[0-9]+)*)",
        (2, 3),
        "build it from its sources",
        "that tells its result when it is stopped",
    )


class Memtier(Peer):
    """One thread of memtier_benchmark with all clients; its seconds are cut by its own clock."""

    def __init__(self, workload: Workload, server: Server, directory: Path) -> None:
        self._wall_before_ns = wall_ahead()
        super().__init__(workload, find(workload), server, directory)

    def command(self) -> list[str]:
        load, server = self.workload.load, self.workload.server
        last = MEMTIER_FIRST_KEY + server.keys - 1
        arguments = [
            f"--server={ADDRESS}",
            f"--port={self._server.port}",
            f"--clients={load.clients}",
            "--threads=1",
            f"--ratio={load.set_get}",
            f"--data-size={server.value_size}",
            "--key-prefix=",
            f"--key-minimum={MEMTIER_FIRST_KEY}",
            f"--key-maximum={last}",
            f"--key-pattern={_PATTERNS[load.keys]}:{_PATTERNS[load.keys]}",
            f"--test-time={round(self.longest_s()) + 60}",
            f"--print-percentiles={','.join(_PERCENTILES.values())}",
            f"--json-out-file={self.directory / _RESULT}",
            "--hide-histogram",
            "--distinct-client-seed",
        ]
        if server.value_entropy:
            arguments.append("--random-data")
        if load.keys == "gaussian":
            arguments.append(f"--key-stddev={load.gaussian_sigma * server.keys:g}")
            arguments.append(f"--key-median={min(last, MEMTIER_FIRST_KEY + load.gaussian_mean * server.keys):.0f}")
        if load.keys == "zipf":
            arguments.append(f"--key-zipf-exp={load.zipf_theta:g}")
        if load.rate:
            arguments.append(f"--rate-limiting={load.rate // load.clients}")
        return arguments

    def on_line(self, line: bytes) -> None:
        """Its table is in its JSON too."""

    def end(self) -> None:
        ended_by(self.program, signal.SIGINT)
        self._wall_after_ns = wall_ahead()

    def result(self) -> dict[str, Any]:
        try:
            document = json.loads((self.directory / _RESULT).read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError) as error:
            raise self._said() from error
        # It writes an error a line and goes on.
        errors = sum("handle error response" in line for line in self.program.words().splitlines())
        moved_ns = abs(self._wall_after_ns - self._wall_before_ns)
        told = summary(document, self._wall_after_ns, _START_ERROR_NS + moved_ns)
        rate = self.workload.load.rate or None
        return told | {"errors": errors, "rate_wanted": rate, "notes": NOTES}


def summary(document: dict[str, Any], wall_ns: int, error_ns: int) -> dict[str, Any]:
    """What memtier_benchmark's JSON tells, its times moved to CLOCK_MONOTONIC by `wall_ns`.

    RunFailed where it is not as memtier_benchmark 2.3 writes it.
    """
    try:
        stats = document["ALL STATS"]
        runtime, totals = stats["Runtime"], stats["Totals"]
        start_ns, end_ns = (int(runtime[key]) * 1_000_000 - wall_ns for key in ("Start time", "Finish time"))
        count = int(totals["Count"])
        quantiles = totals["Percentile Latencies"]
        latency = {key: _us(quantiles[f"p{float(value):.2f}"]) for key, value in _PERCENTILES.items()}
        seconds = sorted((int(second), told) for second, told in totals["Time-Serie"].items())
        intervals = [
            {
                "start_ns": start_ns + second * 10**9,
                "end_ns": min(start_ns + (second + 1) * 10**9, end_ns),
                "count": int(told["Count"]),
                "max_us": _us(told["Max Latency"]) if told["Count"] else None,
                "points": None,
            }
            for second, told in seconds
        ]
        return {
            "start_ns": start_ns,
            "end_ns": end_ns,
            "completed": count,
            "misses": round(stats["Gets"]["Misses/sec"] * (end_ns - start_ns) / 1e9),
            "lost": int(totals["Connection Errors"]),
            "rate_sent": float(totals["Ops/sec"]),
            "latency_us": (latency | {"max": _us(totals["Max Latency"])})
            if count
            else dict.fromkeys([*latency, "max"]),
            "intervals": intervals,
            "interval_error_ns": error_ns,
            "percentiles_are": "to three significant digits",
        }
    except (KeyError, TypeError, ValueError) as error:
        raise RunFailed(
            f"The JSON of {NAME} is not as version 2.3 writes it ({type(error).__name__}: {error}): use that version."
        ) from error


def _us(milliseconds: float) -> float:
    return round(float(milliseconds) * 1000, 3)

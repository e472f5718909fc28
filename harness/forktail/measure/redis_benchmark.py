# SPDX-License-Identifier: Apache-2.0
"""redis-benchmark as the harness drives it: batch after batch, each with its histogram."""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path
from typing import Any

from forktail.measure.peer import Peer, PeerProgram, ended_by, find_peer
from forktail.measure.server import ADDRESS, Server
from forktail.workload import Workload

NAME = "redis-benchmark"
_FILL_TO_BATCH = 20
"""Fills are pipelined, and several times as fast: a batch of this share of a second's keys takes a quarter of one."""
_FEWEST, _FEWEST_PER_CLIENT, _MOST = 1_000, 20, 100_000
_LOG = "redis-benchmark.txt"
_END_ERROR_NS = 20_000_000
"""A batch is told to have ended when its line was read, and to have taken so long to a hundredth of a second."""

_TOOK = re.compile(rb"^\s*([0-9]+) requests completed in ([0-9.]+) seconds")
_POINT = re.compile(rb"^[0-9.]+% <= ([0-9.]+) milliseconds \(cumulative count ([0-9]+)\)")
_ROW = re.compile(rb"^\s+((?:[0-9.]+\s+){5}[0-9.]+)$")

NOTES = """\
It keeps no rate: load.rate has no effect, and the server is as busy as so many connections can make it.
It works in batches, between which it connects anew, and prints a histogram of each: the percentiles are those of all \
histograms together. They are upper bounds, in steps of 0.1 ms below 2 ms and of 1 ms above, some of them finer.
A batch that touches a window is the snapshot's, all of it. The last batch, which was not whole, is in no figure.
It writes one value over and over: load.seed and server.value_entropy are those of the fill.
""".splitlines()


def find(workload: Workload) -> PeerProgram:
    """redis-benchmark on this host; those of Valkey and KeyDB are its descendants."""
    return find_peer(
        workload,
        r"(?:redis|valkey|keydb)-benchmark ([0-9]+(?:\.[0-9]+)*)",
        (6, 2),
        "`apt-get install redis-tools`",
        "that prints a histogram",
    )


class Batches:
    """What redis-benchmark has printed so far: the batches that are whole."""

    def __init__(self) -> None:
        self.whole: list[dict[str, Any]] = []
        self._open: dict[str, Any] = {}

    def take(self, line: bytes, now_ns: int) -> None:
        """A line of its output, read at `now_ns`."""
        # Its running display ends in carriage returns, not in lines.
        line = line.rsplit(b"\r", 1)[-1]
        if took := _TOOK.match(line):
            count = int(took[1])
            start_ns = now_ns - round(float(took[2]) * 1e9)
            self._open = {"start_ns": start_ns, "end_ns": now_ns, "count": count, "points": {}}
        elif self._open and (point := _POINT.match(line)):
            points = self._open["points"]
            latency, counted = round(float(point[1]) * 1000, 3), int(point[2])
            points[latency] = max(points.get(latency, 0), counted)
        elif self._open and (row := _ROW.match(line)):
            self._close([round(float(value) * 1000, 3) for value in row[1].split()])

    def _close(self, row: list[float]) -> None:
        """The row of a batch's last lines: average, minimum, p50, p95, p99 and maximum."""
        batch, slowest = self._open, row[-1]
        points = {latency: count for latency, count in batch["points"].items() if latency < slowest}
        points[slowest] = batch["count"]
        self.whole.append(batch | {"max_us": slowest, "points": [list(pair) for pair in sorted(points.items())]})
        self._open = {}


class RedisBenchmark(Peer):
    """redis-benchmark -l, which goes from batch to batch until it is stopped."""

    def __init__(self, workload: Workload, server: Server, directory: Path, keys_per_s: float) -> None:
        """`keys_per_s` is how fast the fill was, which tells the size of a batch."""
        self._batch = round(
            min(max(keys_per_s / _FILL_TO_BATCH, _FEWEST, _FEWEST_PER_CLIENT * workload.load.clients), _MOST)
        )
        self._batches = Batches()
        self._lines: list[bytes] = []
        super().__init__(workload, find(workload), server, directory)

    def command(self) -> list[str]:
        load, server = self.workload.load, self.workload.server
        return [
            "-h",
            ADDRESS,
            "-p",
            str(self._server.port),
            "-c",
            str(load.clients),
            "-n",
            str(self._batch),
            "-r",
            str(server.keys),
            "-d",
            str(server.value_size),
            "-t",
            "get" if load.set_get.startswith("0:") else "set",
            "-l",
        ]

    def on_line(self, line: bytes) -> None:
        self._lines.append(line)
        self._batches.take(line, time.monotonic_ns())

    def end(self) -> None:
        ended_by(self.program, signal.SIGTERM, code=-signal.SIGTERM)

    def result(self) -> dict[str, Any]:
        end_ns = time.monotonic_ns()
        (self.directory / _LOG).write_bytes(b"\n".join(self._lines))
        batches = self._batches.whole
        if not batches:
            raise self._said()
        completed = sum(batch["count"] for batch in batches)
        return {
            "start_ns": self.start_ns,
            "end_ns": end_ns,
            "completed": completed,
            # It ends at the first error, and asks for nothing that it would miss.
            "errors": 0,
            "misses": None,
            "lost": 0,
            "rate_sent": round(completed / (batches[-1]["end_ns"] - batches[0]["start_ns"]) * 1e9, 3),
            "latency_us": None,
            "intervals": batches,
            "interval_error_ns": _END_ERROR_NS,
            "percentiles_are": "as upper bounds, in steps of 0.1 ms below 2 ms and of 1 ms above",
            "notes": NOTES,
        }

# SPDX-License-Identifier: Apache-2.0
"""The query log `queries.bin`: every query of a run, as the generator saw it (docs/formats.md)."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from forktail.analysis.binary_log import ANEW, LogFormat, read_header
from forktail.errors import BadInput

NEVER = 2**44 - 1
"""The delta of a time that never came."""

OPERATIONS = ("GET", "SET")
STATUSES = ("ok", "error", "lost", "in flight", "unsent")
OK, ERROR, LOST, IN_FLIGHT, UNSENT = range(len(STATUSES))

_FORMAT = LogFormat("query log", b"FTQLOG\0\0", 2, struct.Struct("<8s4I3QdQ"), 32)

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class QueryLog:
    """Parallel arrays, one element a query, in the order of intended time.

    Times are signed, so that differences need no care; CLOCK_MONOTONIC stays below 2^63 ns for 292 years.
    """

    start_ns: int
    rate: float
    seed: int
    connections: int
    intended_ns: Int64
    lag_ns: Int64
    """sent - intended, or NEVER."""
    held_ns: Int64
    """The part of the lag in which the socket was full, because the server was not reading."""
    client_lag_ns: Int64
    """The other part of the lag, which is the generator's own; NEVER where the lag is."""
    latency_ns: Int64
    """completed - intended, or NEVER; completed is when the whole reply was in the client's socket."""
    read_delay_ns: Int64
    """How long the reply then lay there until the generator read it; no part of the latency."""
    operation: npt.NDArray[np.uint8]
    status: npt.NDArray[np.uint8]
    miss: npt.NDArray[np.bool_]
    stamped: npt.NDArray[np.bool_]
    """Whether the kernel stamped the reply's arrival; without a stamp it counts from its reading."""

    def __len__(self) -> int:
        return len(self.intended_ns)

    @property
    def connection(self) -> npt.NDArray[np.uint32]:
        """The index of each query's connection: queries go to the connections in turn."""
        return np.arange(len(self), dtype=np.uint32) % np.uint32(max(self.connections, 1))


def no_queries(connections: int) -> QueryLog:
    """The query log of a run whose generator keeps none."""
    times, codes = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.uint8)
    flags = np.empty(0, dtype=np.bool_)
    return QueryLog(
        start_ns=0,
        rate=0.0,
        seed=0,
        connections=connections,
        intended_ns=times,
        lag_ns=times,
        held_ns=times,
        client_lag_ns=times,
        latency_ns=times,
        read_delay_ns=times,
        operation=codes,
        status=codes,
        miss=flags,
        stamped=flags,
    )


def read_query_log(path: Path) -> QueryLog:
    """Read and verify a query log; every fault is a BadInput that names the file."""
    connections, records, start, seed, rate, _ = read_header(path, _FORMAT)
    if not 0 <= start < 2**63:
        raise BadInput(f"{path} starts at {start} ns, which is no CLOCK_MONOTONIC time: {ANEW}")

    words = (
        np.memmap(path, dtype="<u8", mode="r", offset=_FORMAT.header.size, shape=(records, 4))
        if records
        else np.empty((0, 4), dtype="<u8")
    )
    lag = _delta(words[:, 1])
    codes = np.ascontiguousarray(words[:, 3])
    held = _split_delta(words[:, 1], codes)
    log = QueryLog(
        start_ns=start,
        rate=rate,
        seed=seed,
        connections=connections,
        intended_ns=np.ascontiguousarray(words[:, 0]).view(np.int64),
        lag_ns=lag,
        held_ns=held,
        client_lag_ns=np.where(lag == NEVER, NEVER, lag - held) if held.any() else lag,
        latency_ns=_delta(words[:, 2]),
        read_delay_ns=_split_delta(words[:, 2], codes >> np.uint64(24)),
        operation=(codes >> np.uint64(48)).astype(np.uint8) & np.uint8(15),
        status=(codes >> np.uint64(52)).astype(np.uint8) & np.uint8(15),
        miss=(codes >> np.uint64(56)).astype(np.uint8) & np.uint8(1) != 0,
        stamped=(codes >> np.uint64(57)).astype(np.uint8) & np.uint8(1) != 0,
    )
    _verify(path, log)
    return log


def _delta(words: npt.NDArray[np.uint64]) -> Int64:
    """The low 44 bits."""
    return (words & np.uint64(NEVER)).view(np.int64)


def _split_delta(low: npt.NDArray[np.uint64], high: npt.NDArray[np.uint64]) -> Int64:
    """A delta in two pieces: its low 20 bits are on top of one word, its high 24 bits at the bottom of another."""
    joined: npt.NDArray[np.uint64] = (low >> np.uint64(44)) | ((high & np.uint64(0xFFFFFF)) << np.uint64(20))
    return joined.view(np.int64)


def _verify(path: Path, log: QueryLog) -> None:
    """Refuse a log that no generator of this version writes, naming the first record at fault."""

    def refuse(at_fault: npt.NDArray[np.bool_], what: str) -> None:
        if at_fault.any():
            raise BadInput(f"{path}: record {int(np.argmax(at_fault))} {what}: {ANEW}")

    if not len(log):
        return
    refuse(log.intended_ns < 0, "has an intended time that is no CLOCK_MONOTONIC time")
    refuse(log.intended_ns[1:] < log.intended_ns[:-1], "is intended later than the one behind it")
    refuse(log.operation >= len(OPERATIONS), "has an unknown operation")
    refuse(log.status >= len(STATUSES), "has an unknown status")
    replied = log.status <= ERROR
    refuse(replied & (log.latency_ns == NEVER), "has a reply but no time of completion")
    refuse(replied & (log.lag_ns > log.latency_ns), "is completed before it is sent")
    refuse((log.lag_ns != NEVER) & (log.held_ns > log.lag_ns), "was held longer than it was not sent")
    refuse((log.status == UNSENT) != (log.lag_ns == NEVER), "contradicts itself on whether it was sent")


def counts(log: QueryLog) -> dict[str, int]:
    """Queries by fate, under the names that `load.json` uses."""
    by_status = np.bincount(log.status, minlength=len(STATUSES))
    return {
        "intended": len(log),
        "sent": len(log) - int(by_status[UNSENT]),
        "completed": int(by_status[OK]),
        "errors": int(by_status[ERROR]),
        "lost": int(by_status[LOST]),
        "in_flight": int(by_status[IN_FLIGHT]),
        "unsent": int(by_status[UNSENT]),
    }


def conservation_faults(log: QueryLog, load: Mapping[str, Any]) -> list[str]:
    """Where the log and the generator's own counts in `load.json` disagree, each as "name: log N, load.json M"."""
    faults = []
    for name, in_log in counts(log).items():
        claimed = load.get(name)
        if claimed != in_log:
            faults.append(f"{name}: log {in_log}, load.json {claimed}")
    if load.get("conserved") is False:
        faults.append("the generator itself reports that its counts do not add up")
    return faults

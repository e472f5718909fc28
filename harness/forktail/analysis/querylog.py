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

_FORMAT = LogFormat("query log", b"FTQLOG\0\0", 1, struct.Struct("<8s4I3QdQ"), 24)

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
    client_lag_ns: Int64
    """The part of the lag that is the generator's: none where the query waited for room in its socket, or NEVER."""
    latency_ns: Int64
    """completed - intended, or NEVER."""
    connection: npt.NDArray[np.uint32]
    operation: npt.NDArray[np.uint8]
    status: npt.NDArray[np.uint8]
    miss: npt.NDArray[np.bool_]
    held: npt.NDArray[np.bool_]
    """Waited for room in its socket: the server was not reading."""

    def __len__(self) -> int:
        return len(self.intended_ns)


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
        client_lag_ns=times,
        latency_ns=times,
        connection=np.empty(0, dtype=np.uint32),
        operation=codes,
        status=codes,
        miss=flags,
        held=flags,
    )


def read_query_log(path: Path) -> QueryLog:
    """Read and verify a query log; every fault is a BadInput that names the file."""
    connections, records, start, seed, rate, _ = read_header(path, _FORMAT)
    if not 0 <= start < 2**63:
        raise BadInput(f"{path} starts at {start} ns, which is no CLOCK_MONOTONIC time: {ANEW}")

    words = (
        np.memmap(path, dtype="<u8", mode="r", offset=_FORMAT.header.size, shape=(records, 3))
        if records
        else np.empty((0, 3), dtype="<u8")
    )
    delta = np.uint64(NEVER)
    third = np.ascontiguousarray(words[:, 2])
    lag = (words[:, 1] & delta).view(np.int64)
    held = (third >> np.uint64(53)).astype(np.uint8) & np.uint8(1) != 0
    log = QueryLog(
        start_ns=start,
        rate=rate,
        seed=seed,
        connections=connections,
        intended_ns=np.ascontiguousarray(words[:, 0]).view(np.int64),
        lag_ns=lag,
        client_lag_ns=np.where(held & (lag != NEVER), 0, lag) if held.any() else lag,
        latency_ns=(third & delta).view(np.int64),
        connection=(words[:, 1] >> np.uint64(44)).astype(np.uint32),
        operation=(third >> np.uint64(44)).astype(np.uint8) & np.uint8(15),
        status=(third >> np.uint64(48)).astype(np.uint8) & np.uint8(15),
        miss=(third >> np.uint64(52)).astype(np.uint8) & np.uint8(1) != 0,
        held=held,
    )
    _verify(path, log)
    return log


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

# SPDX-License-Identifier: Apache-2.0
"""The data set of a run: its queries and its kernel events as Parquet, for any engine that reads that."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from forktail.analysis.attribute import CAUSES
from forktail.analysis.classify import CLASSES
from forktail.analysis.eventlog import Kind
from forktail.analysis.querylog import NEVER, OPERATIONS, STATUSES
from forktail.analysis.result import NO_CAUSE, Result

_ROW_GROUP = 1 << 20
_KINDS = ("none", *(kind.name.lower() for kind in Kind))

_MEANING = {
    "intended_ns": "when the query was due, CLOCK_MONOTONIC",
    "lag_ns": "sent - intended; null when it was never sent",
    "latency_ns": "from intended to the reply's arrival in the client's socket; null when no reply came",
    "connection": "index of the client connection",
    "operation": "what was asked",
    "status": "what became of it",
    "miss": "a GET that found no key",
    "held_ns": "the part of lag_ns in which the query waited for room in its socket: the server's, not the generator's",
    "owed_ns": "the part of latency_ns that came from the load generator's own lateness",
    "read_delay_ns": "how long the reply lay in the client's socket until it was read: no part of latency_ns",
    "stamped": "whether the kernel stamped the reply's arrival; without a stamp it counts from its reading",
    "class": "by arrival: snapshot within a window, warmup before the measurement, armed near a window while costly "
    "programs of the probe were attached, else normal",
    "cause": "the greatest part of the latency, a stall together with the queueing behind it; null without a reply",
    "start_ns": "when the event began, CLOCK_MONOTONIC",
    "duration_ns": "how long it took; 0 for an instant",
    "kind": "what happened",
    "context": "by kind: clone flags, pages, address, or pid",
    "aux": "by kind: pid, bits of a fault, why a page table was copied, tables of a flight, whether for block I/O, "
    "or exit code",
    "sequence": "number on its CPU; a hole is a lost event",
    "tgid": "process, in the root PID namespace",
    "tid": "thread, in the root PID namespace",
    "cpu": "CPU",
    "snapshot": "index of the snapshot in whose window the event began; null outside",
}


def write_queries(result: Result, path: Path) -> None:
    """Write `queries.parquet`, a row a query in the order of intended time."""
    queries = result.run.queries
    columns = {
        "intended_ns": pa.array(queries.intended_ns),
        "lag_ns": _nullable(queries.lag_ns),
        "held_ns": pa.array(queries.held_ns),
        "latency_ns": _nullable(queries.latency_ns),
        "owed_ns": pa.array(result.owed_ns),
        "read_delay_ns": pa.array(queries.read_delay_ns),
        "stamped": pa.array(queries.stamped),
        "connection": pa.array(queries.connection),
        "operation": _named(queries.operation, OPERATIONS),
        "status": _named(queries.status, STATUSES),
        "miss": pa.array(queries.miss),
        "class": _named(result.classes, CLASSES),
        "cause": _named(result.cause, CAUSES, missing=NO_CAUSE),
    }
    # Sorted times shrink to a byte or two as differences; zstd level 1 keeps pace with the disk.
    _write(columns, path, result, {"intended_ns": "DELTA_BINARY_PACKED"})


def write_events(result: Result, path: Path) -> None:
    """Write `events.parquet`, a row a kernel event in the order of start."""
    events = result.run.events.events
    within = np.full(len(events), -1, dtype=np.int32)
    for index, fork in enumerate(result.snapshots):
        within[(events["start"] >= fork.start_ns) & (events["start"] <= fork.end_ns)] = index
    columns = {
        "start_ns": pa.array(events["start"].astype(np.int64)),
        "duration_ns": pa.array(events["duration"].astype(np.int64)),
        "kind": _named(events["kind"].astype(np.uint8), _KINDS),
        **{name: pa.array(np.ascontiguousarray(events[name])) for name in ("context", "aux", "sequence")},
        **{name: pa.array(np.ascontiguousarray(events[name])) for name in ("tgid", "tid", "cpu")},
        "snapshot": pa.array(within, mask=within < 0),
    }
    _write(columns, path, result, {"start_ns": "DELTA_BINARY_PACKED"})


def _nullable(deltas: npt.NDArray[np.int64]) -> pa.Array:
    never = deltas == NEVER
    return pa.array(deltas, mask=never) if never.any() else pa.array(deltas)


def _named(codes: npt.NDArray[np.uint8], names: tuple[str, ...], missing: int | None = None) -> pa.Array:
    absent = codes == missing
    indices = codes.view(np.int8)
    return pa.DictionaryArray.from_arrays(
        pa.array(indices, mask=absent) if missing is not None and absent.any() else pa.array(indices),
        list(names),
    )


def _write(columns: Mapping[str, pa.Array], path: Path, result: Result, encodings: dict[str, str]) -> None:
    fields = [
        pa.field(
            name,
            array.type,
            metadata={"meaning": _MEANING[name]} | ({"unit": "ns"} if name.endswith("_ns") else {}),
        )
        for name, array in columns.items()
    ]
    schema = pa.schema(fields, metadata=_provenance(result.run.manifest))
    dictionaries = [field.name for field in fields if pa.types.is_dictionary(field.type)]
    temporary = path.with_name(path.name + ".tmp")
    pq.write_table(
        pa.Table.from_arrays(list(columns.values()), schema=schema),
        temporary,
        row_group_size=_ROW_GROUP,
        compression="zstd",
        compression_level=1,
        use_dictionary=dictionaries,
        column_encoding=encodings,
    )
    temporary.replace(path)


def _provenance(manifest: Mapping[str, Any]) -> dict[str, str]:
    names = ("name", "forktail", "started_at", "boot_id", "clock")
    return {f"forktail.{name}": str(manifest[name]) for name in names if manifest.get(name) is not None}

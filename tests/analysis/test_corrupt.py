# SPDX-License-Identifier: Apache-2.0
"""A run directory that is damaged or foreign: BadInput in one sentence that names the file."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.analysis.synthetic import NEVER, ORIGIN, Event, Query, RunDirectory, event_log, query_log

from forktail.analysis import analyse
from forktail.errors import BadInput

Damage = Callable[[bytes], bytes]


def _patched(offset: int, form: str, value: object) -> Damage:
    def patch(content: bytes) -> bytes:
        changed = bytearray(content)
        struct.pack_into(form, changed, offset, value)
        return bytes(changed)

    return patch


def _without(key: str) -> Damage:
    def drop(content: bytes) -> bytes:
        document = json.loads(content)
        del document[key]
        return json.dumps(document).encode()

    return drop


def _queries(*queries: Query) -> Damage:
    return lambda _: query_log(queries)


def _twice(_: bytes) -> bytes:
    return event_log([Event(4, ORIGIN, 10, sequence=7), Event(4, ORIGIN + 20, 10, sequence=7)])


DAMAGES: list[tuple[str, str, Damage]] = [
    ("queries.bin", "magic", lambda content: b"GARBAGE!" + content[8:]),
    ("queries.bin", "version 1", _patched(8, "<I", 1)),
    ("queries.bin", "header", lambda content: content[:40]),
    ("queries.bin", "header", lambda _: b""),
    ("queries.bin", "records of 24", _patched(16, "<I", 24)),
    ("queries.bin", "bytes for its", lambda content: content[:-1]),
    ("queries.bin", "bytes for its", lambda content: content + b"\0"),
    ("queries.bin", "bytes for its", _patched(24, "<Q", 2**60)),
    ("queries.bin", "record 0 is intended later", _queries(Query(ORIGIN + 1), Query(ORIGIN))),
    ("queries.bin", "record 1 has an unknown operation", _queries(Query(ORIGIN), Query(ORIGIN, operation=9))),
    ("queries.bin", "record 0 has an unknown status", _queries(Query(ORIGIN, status=5))),
    ("queries.bin", "no time of completion", _queries(Query(ORIGIN, latency=NEVER))),
    ("queries.bin", "completed before it is sent", _queries(Query(ORIGIN, latency=10, lag=11))),
    ("queries.bin", "whether it was sent", _queries(Query(ORIGIN, latency=NEVER, lag=5, status=4))),
    ("queries.bin", "whether it was sent", _queries(Query(ORIGIN, latency=NEVER, lag=NEVER, status=2))),
    ("queries.bin", "record 0 has an intended time", _queries(Query(2**63))),
    ("events.bin", "magic", lambda content: b"FTQLOG\0\0" + content[8:]),
    ("events.bin", "version 9", _patched(8, "<I", 9)),
    ("events.bin", "header", lambda content: content[:63]),
    ("events.bin", "header of 128", _patched(12, "<I", 128)),
    ("events.bin", "bytes for its", lambda content: content[:-48]),
    ("events.bin", "record 0 has the unknown kind 99", _patched(64 + 46, "<H", 99)),
    ("events.bin", "record 0 has no CLOCK_MONOTONIC time", _patched(64, "<Q", 2**63)),
    ("events.bin", "sequence number 7 twice", _twice),
    ("load.json", "JSON", lambda content: content[: len(content) // 2]),
    ("load.json", "schema", lambda content: content.replace(b"forktail.load/2", b"forktail.load/7")),
    ("probe.json", "schema", _without("schema")),
    ("probe.json", "JSON object", lambda _: b"[]"),
    ("run.json", "schema", lambda content: content.replace(b"forktail.run/1", b"forktail.run/2")),
    ("run.json", "marks.load_start_ns", _without("marks")),
    ("environment.json", "JSON", lambda _: b"\xff\xfe"),
    ("info.jsonl", "line 2", lambda content: content + b'{"t_ns": 5'),
    ("info.jsonl", "line 1", lambda _: b'{"used_memory": 5}'),
    ("workload.toml", "cannot be read", lambda _: b"\xff\xfe"),
]


@pytest.mark.parametrize(("name", "word", "damage"), DAMAGES)
def test_a_damaged_file_is_named(tmp_path: Path, name: str, word: str, damage: Damage) -> None:
    run = RunDirectory.whole().write(tmp_path / "run")
    (run / name).write_bytes(damage((run / name).read_bytes()))
    with pytest.raises(BadInput) as caught:
        analyse(run)
    message = str(caught.value)
    assert str(run / name) in message
    assert word in message
    assert message.endswith(".")
    assert "\n" not in message
    assert caught.value.exit_code == 2
    assert not (run / "summary.json").exists()


@pytest.mark.parametrize("name", ["queries.bin", "events.bin", "load.json", "probe.json", "run.json", "info.jsonl"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    run = RunDirectory.whole().write(tmp_path / "run")
    (run / name).unlink()
    with pytest.raises(BadInput, match=name):
        analyse(run)


def test_a_run_without_queries_or_events_is_told_as_invalid(tmp_path: Path) -> None:
    directory = RunDirectory.whole(queries=[])
    directory.events = []
    summary = analyse(directory.write(tmp_path / "run"))
    assert not summary.valid
    assert summary.document["queries"]["snapshot"]["p99_us"] is None
    assert (tmp_path / "run" / "report.html").exists()

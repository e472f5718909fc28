# SPDX-License-Identifier: Apache-2.0
"""What the two binary logs of a run share: a header that tells what follows, checked before a record is believed."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forktail.errors import BadInput

ANEW = "copy the run directory again, or run again."
"""The mend for a damaged log."""


@dataclass(frozen=True)
class LogFormat:
    """One kind of log: its name in sentences, and its layout (docs/formats.md)."""

    name: str
    magic: bytes
    version: int
    header: struct.Struct
    """Begins with magic, version, header bytes, record bytes and one more u32, then the number of records."""
    record_bytes: int
    oldest: int | None = None
    """The oldest version that is read too, with the same layout; None where that is `version`."""


def read_header(path: Path, log: LogFormat) -> tuple[Any, ...]:
    """The header's fields from the fourth u32 on; BadInput where the file is not a whole log of this format."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(log.header.size)
    except OSError as error:
        raise BadInput(f"{path} cannot be read ({error.strerror}): {ANEW}") from error
    if len(head) < log.header.size:
        raise BadInput(f"{path} ends inside its header ({size} of {log.header.size} bytes): {ANEW}")
    magic, version, header_bytes, record_bytes, *fields = log.header.unpack(head)
    if magic != log.magic:
        raise BadInput(f"{path} is no {log.name} (its magic is {magic!r}): {ANEW}")
    oldest = log.version if log.oldest is None else log.oldest
    if not oldest <= version <= log.version:
        versions = f"version {log.version}" if oldest == log.version else f"versions {oldest} to {log.version}"
        raise BadInput(
            f"{path} is {log.name} version {version}, but this forktail reads {versions}: "
            "use the forktail that wrote it."
        )
    if (header_bytes, record_bytes) != (log.header.size, log.record_bytes):
        raise BadInput(
            f"{path} claims a header of {header_bytes} and records of {record_bytes} bytes, "
            f"not {log.header.size} and {log.record_bytes}: {ANEW}"
        )
    records = fields[1]
    expected = log.header.size + records * log.record_bytes
    if size != expected:
        raise BadInput(f"{path} should be {expected} bytes for its {records} records, but is {size}: {ANEW}")
    return tuple(fields)

# SPDX-License-Identifier: Apache-2.0
"""Samples of the server's INFO: a cross-check of the probe, never its replacement."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from forktail.measure.server import Server

# INFO runs on the server's only thread, so a sample is rare and asks for no section that walks the data.
PERIOD_NS = 1_000_000_000
_SECTIONS = ("persistence", "stats", "memory")
_FIELDS = (
    "rdb_bgsave_in_progress",
    "rdb_last_bgsave_status",
    "rdb_last_bgsave_time_sec",
    "rdb_last_cow_size",
    "current_save_keys_processed",
    "current_save_keys_total",
    "latest_fork_usec",
    "used_memory",
    "used_memory_rss",
    "instantaneous_ops_per_sec",
    "total_commands_processed",
    "total_forks",
)


class InfoLog:
    """The samples of one run, appended to `info.jsonl` as they are taken."""

    def __init__(self, server: Server, path: Path) -> None:
        self._server = server
        self._file = path.open("w", encoding="utf-8")
        self._next_ns = 0

    def due(self, now_ns: int) -> bool:
        """Whether the next regular sample is due."""
        return now_ns >= self._next_ns

    def sample(self) -> dict[str, Any]:
        """Take a sample now and return it: `t_ns` and the fields kept."""
        now_ns = time.monotonic_ns()
        self._next_ns = now_ns + PERIOD_NS
        info = self._server.info(*_SECTIONS)
        sample = {"t_ns": now_ns} | {name: info[name] for name in _FIELDS if name in info}
        self._file.write(json.dumps(sample) + "\n")
        return sample

    def close(self) -> None:
        """Put the samples on disk."""
        self._file.close()

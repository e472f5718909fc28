# SPDX-License-Identifier: Apache-2.0
"""The engines whose snapshots can be measured: their programs, and in what their configurations differ."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from forktail.errors import BadInput
from forktail.measure.installed import ask_version, find_installed
from forktail.workload import EngineName, Workload


@dataclass(frozen=True)
class Engine:
    """A store of Redis' family; each of its versions counts on from the Redis that it was forked from."""

    name: EngineName
    """As `server.engine` has it."""
    called: str
    """As its program calls itself."""
    mend: str
    """How to get its program."""
    threads: str
    """The directive for the number of threads that serve clients."""

    @property
    def program(self) -> str:
        """What is looked for on PATH."""
        return f"{self.name}-server"


ENGINES = {
    engine.name: engine
    for engine in (
        Engine("redis", "Redis", "`apt-get install redis-server`", "io-threads"),
        Engine("keydb", "KeyDB", "build it from its sources", "server-threads"),
        Engine("valkey", "Valkey", "`apt-get install valkey-server`, or build it from its sources", "io-threads"),
    )
}


@dataclass(frozen=True)
class EngineProgram:
    """An engine's program as it was found on this host."""

    engine: Engine
    path: Path
    version: str

    @property
    def number(self) -> tuple[int, ...]:
        """The version as it sorts: (6, 2, 0) of "6.2.0"."""
        return tuple(int(part) for part in re.findall(r"\d+", self.version)[:3])

    def directives(self, threads: int) -> dict[str, str]:
        """What of the configuration depends on engine and version."""
        own: dict[str, str] = {}
        if self.number >= (6, 2):
            # Redis 5 and 6.0 know neither, and refuse to start.
            own |= {"disable-thp": "yes", "oom-score-adj": "no"}
        if self.engine.name == "keydb":
            own[self.engine.threads] = str(threads)
            if self.number >= (6, 3):
                # Its other way to snapshot is a thread, with no fork to measure; it was the default up to 6.3.3.
                own["use-fork"] = "yes"
        elif threads > 1:
            own[self.engine.threads] = str(threads)
        return own


def find_program(workload: Workload) -> EngineProgram:
    """The server's program; EnvironmentLacks where it is missing, BadInput where it is another engine or version."""
    wanted = workload.server
    engine = ENGINES[wanted.engine]
    found = find_installed("server.path", wanted.path, engine.program, engine.mend)
    output = ask_version(found, "server.path", engine.program)
    match = re.search(r"^(\w+) server v=([0-9][^ ]*)", output, re.MULTILINE)
    known = {engine.called: engine for engine in ENGINES.values()}
    if match is None or match[1] not in known:
        raise BadInput(f"{found} does not call itself a {engine.called} server: set server.path to a {engine.program}.")
    called, version = match.groups()
    if called != engine.called:
        raise BadInput(
            f"{found} is {called} {version}, but server.engine is {engine.name!r}: set server.engine to "
            f"{known[called].name!r}, or server.path to a {engine.program}."
        )
    if wanted.version and version != wanted.version:
        raise BadInput(f"{found} is version {version}, but server.version is {wanted.version}: set server.path.")
    return EngineProgram(engine, Path(found), version)

# SPDX-License-Identifier: Apache-2.0
"""The generators that can load a server, behind one face."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from forktail import rundir
from forktail.measure import load, memtier, redis_benchmark
from forktail.measure.load import Load
from forktail.measure.memtier import Memtier
from forktail.measure.native import find_native
from forktail.measure.peer import PeerProgram
from forktail.measure.program import Program
from forktail.measure.redis_benchmark import RedisBenchmark
from forktail.measure.server import Server
from forktail.workload import GeneratorName, Workload

PEERS: dict[GeneratorName, Callable[[Workload], PeerProgram]] = {
    "memtier_benchmark": memtier.find,
    "redis-benchmark": redis_benchmark.find,
}
"""How each generator of others is found on this host."""


class Generator(Protocol):
    """A load at work."""

    start_ns: int
    """When the load began; 0 before `wait_until_started`."""

    @property
    def program(self) -> Program:
        """The generator's process."""

    def wait_until_started(self) -> None:
        """Wait for the beginning of the load."""

    def stop(self) -> dict[str, Any]:
        """End the load; returns what is stored as `load.json`."""


def find_generator(workload: Workload) -> PeerProgram | None:
    """The generator's program where it is not our own; the errors of `find_peer` and `find_native`."""
    find_native(load.NAME)  # It fills the server in any case.
    find = PEERS.get(workload.load.generator)
    return find(workload) if find else None


def start_load(workload: Workload, server: Server, directory: Path, keys_per_s: float) -> Generator:
    """Start the load of a run in `directory`, whose fill wrote `keys_per_s`."""
    name = workload.load.generator
    if name == memtier.NAME:
        return Memtier(workload, server, directory / rundir.PEER)
    if name == redis_benchmark.NAME:
        return RedisBenchmark(workload, server, directory / rundir.PEER, keys_per_s)
    return Load(workload, server.port, directory)

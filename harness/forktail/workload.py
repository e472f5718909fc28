# SPDX-License-Identifier: Apache-2.0
"""The workload: what one run does, read from TOML and validated whole before anything starts."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    model_validator,
)

from forktail.document import document_of, read_toml
from forktail.errors import BadInput
from forktail.units import format_size, format_time, parse_size, parse_time

KEY_BYTES = 8
"""Every key is this wide (P, section 6.1: key 8 B), so 16^8 of them exist."""


EngineName = Literal["redis", "keydb", "valkey"]
GeneratorName = Literal["forktail-load", "memtier_benchmark", "redis-benchmark"]

MEMTIER_FIRST_KEY, MEMTIER_KEYS = 10**7, 9 * 10**7
"""Its numbers have no leading zeros: these keys are all 8 digits wide."""

PAPERS_KEYDB_THREADS = 4
KEYDB_THREADS = 16
"""KeyDB refuses to start with more (its MAX_EVENT_LOOPS)."""

_ICOUNT = "icount"
"""The key of `[emulated]` that is not the workload's, but its machine's."""


def _size(value: object) -> object:
    if isinstance(value, str):
        return parse_size(value)
    raise ValueError(f"a size needs its unit, as in '512MiB', and {value!r} has none")


def _time(value: object) -> object:
    if isinstance(value, str):
        return parse_time(value)
    raise ValueError(f"a time needs its unit, as in '30s', and {value!r} has none")


def _text(value: object) -> object:
    # `--set server.cpus=1` and `config.hz = 100` are numbers to TOML, and meant as text.
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Text = Annotated[str, BeforeValidator(_text)]
"""Text that may look like a number."""

Size = Annotated[int, BeforeValidator(_size), PlainSerializer(format_size)]
"""Bytes; written with a unit."""

Time = Annotated[int, BeforeValidator(_time), PlainSerializer(format_time)]
"""Nanoseconds; written with a unit."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_default=False)


class Server(_Section):
    """The store under test and the data it holds when the measurement starts."""

    engine: EngineName = "redis"
    path: str = Field(default="", description="the server's program; empty: the engine's own on PATH")
    version: Text = Field(default="", description="the version that the program must be; empty: any")
    port: int = Field(default=0, ge=0, le=65535, description="TCP port on 127.0.0.1; 0: a free one")
    cpus: Text = Field(default="", description="CPUs of the server and its child, as in '0-3,8'; empty: all")
    size: Size = Field(default=512 * 2**20, gt=0, description="payload: keys x value_size prefilled")
    value_size: Size = Field(default=1024, gt=0, le=512 * 2**20)
    value_entropy: float = Field(default=1.0, ge=0, le=1, description="share of a value's bytes that are random")
    threads: int = Field(
        default=0,
        ge=0,
        le=128,
        description="KeyDB's server-threads, which all serve clients; elsewhere io-threads, which help one; "
        "0: 4 of KeyDB's (P, section 6.1), 1 of the others'",
    )
    rdb_compression: bool = False
    rdb_checksum: bool = True
    config: dict[str, Text] = Field(default={}, description="further lines of the server's configuration")

    @property
    def chosen_threads(self) -> int:
        """`threads`, or what stands for 0."""
        return self.threads or (PAPERS_KEYDB_THREADS if self.engine == "keydb" else 1)

    @property
    def keys(self) -> int:
        """How many keys are prefilled: the payload divided by the value's size."""
        return self.size // self.value_size


_PINNED = {
    "port": "server.port",
    "io-threads": "server.threads",
    "server-threads": "server.threads",
    "rdbcompression": "server.rdb_compression",
    "rdbchecksum": "server.rdb_checksum",
    "bind": "load.host",
    "dir": "--out",
    "dbfilename": "--out",
    "logfile": "--out",
}
"""Directives of the server that forktail writes from a key or an option of its own."""


class Load(_Section):
    """The load: open-loop, a request sent when due whatever is outstanding, unless the generator is a closed loop."""

    generator: GeneratorName = Field(
        default="forktail-load", description="the others are closed loops, which send when a reply has come"
    )
    path: str = Field(default="", description="the program of a generator of others; empty: its own on PATH")
    host: str = Field(
        default="",
        pattern=r"^([A-Za-z0-9.-]+(:[0-9]{1,5})?)?$",
        description="where `forktail client` sends the load from, as in '10.0.0.2:7401'; empty: the server's host",
    )
    rate: int = Field(
        default=10_000,
        ge=0,
        le=5_000_000,
        description="requests a second over all clients; a limit for memtier_benchmark, 0 being none; "
        "no effect on redis-benchmark",
    )
    clients: int = Field(default=50, gt=0, le=10_000)
    arrivals: Literal["constant", "poisson"] = "constant"
    keys: Literal["uniform", "gaussian", "zipf"] = "uniform"
    gaussian_mean: float = Field(default=0.5, ge=0, le=1, description="as a share of the key range")
    gaussian_sigma: float = Field(default=0.125, gt=0, le=1, description="as a share of the key range")
    zipf_theta: float = Field(default=0.99, gt=0, le=10)
    set_get: str = Field(default="1:0", pattern=r"^[0-9]+:[0-9]+$", description="SETs to GETs, as in '1:10'")
    writes: Literal["overwrite", "insert"] = "overwrite"
    seed: int = Field(default=1, ge=0, lt=2**63)
    cpu: int = Field(default=-1, ge=-1, description="the generator's CPU; -1: any")
    realtime: bool = Field(
        default=False, description="run the generator under SCHED_FIFO: only where the server cannot land on its CPU"
    )
    spin: Time = Field(default=0, description="poll this long before each due time instead of sleeping")

    @property
    def closed_loop(self) -> bool:
        """Whether a connection's next query waits for the reply to its last."""
        return self.generator != "forktail-load"

    def faults(self, keys: int) -> list[str]:
        """What the generator cannot do, a sentence each; `keys` is how many are filled in."""
        faults = []
        if self.host and self.closed_loop:
            faults.append(
                f"load.host is set, but {self.generator} sends from the server's host: only forktail-load can"
            )
        if not self.closed_loop:
            if self.rate == 0:
                faults.append("load.rate is 0, but forktail-load needs a rate")
            if self.path:
                faults.append("load.path is set, but forktail-load is a part of forktail: leave load.path empty")
            return faults

        ours = {"arrivals": "constant", "writes": "overwrite", "spin": 0}
        if self.generator == "redis-benchmark":
            ours["keys"] = "uniform"
            if "0" not in [str(int(part)) for part in self.set_get.split(":")]:
                faults.append(f"load.set_get is {self.set_get}, but redis-benchmark sends either SETs or GETs")
        for name, only in ours.items():
            if getattr(self, name) != only:
                faults.append(
                    f"load.{name} is {getattr(self, name)!r}, which {self.generator} cannot do: forktail-load can"
                )
        if self.generator == "memtier_benchmark":
            if self.rate % self.clients:
                faults.append(
                    f"load.rate is {self.rate}, but memtier_benchmark limits each connection: give a multiple of the "
                    f"{self.clients} in load.clients, or 0 for no limit"
                )
            if self.keys == "zipf" and self.zipf_theta >= 5:
                faults.append("load.zipf_theta must be less than 5 for memtier_benchmark")
            if keys > MEMTIER_KEYS:
                faults.append(
                    f"server.size / server.value_size is {keys} keys; {MEMTIER_KEYS} of 8 digits exist for memtier"
                )
        return faults


class Snapshot(_Section):
    """When the server is told to fork."""

    trigger: Literal["bgsave"] = "bgsave"
    fork: Literal["kernel", "default"] = Field(
        default="kernel", description="kernel: the mechanism that the kernel is built for; default: leave it off"
    )
    copy_threads: int = Field(
        default=1,
        ge=1,
        le=64,
        description="threads that copy page tables after an async-fork, 1: the child alone; no effect on other kernels",
    )
    at: Time = Field(default=8 * 10**9, description="time of the first trigger, counted from the end of the warm-up")
    count: int = Field(default=1, ge=1, le=1000)
    every: Time = Field(default=60 * 10**9, gt=0, description="from one trigger to the next")


class Run(_Section):
    """How long the run lasts: at least `duration`, and until the last window has closed and cooled down."""

    warm_up: Time = Field(default=2 * 10**9, description="queries of this time belong to no class")
    duration: Time = Field(default=30 * 10**9, gt=0, description="measured time at least, the warm-up not counted")
    cool_down: Time = Field(default=3 * 10**9, description="measured time after the last window's end at least")
    limit: Time = Field(
        default=300 * 10**9, gt=0, description="measured time at most: a window still open is truncated"
    )


class Sweep(_Section):
    """What a sweep varies: each combination is a cell, measured `repeat` times with a fresh server."""

    repeat: int = Field(default=3, ge=1, le=1000, description="runs of each cell")
    spare: int = Field(
        default=0, ge=0, le=1000, description="runs of a cell beyond `repeat`, each made for one that is not valid"
    )
    kernels: list[str] = Field(default=[], description="kernel flavours in the lab; empty: all that exist")
    noise_floor: bool = Field(default=True, description="measure the first kernel a second time, as if it were another")
    vary: dict[str, list[Any]] = Field(default={}, description="further keys and their values, as in server.size")


class Workload(_Section):
    """One run, whole, and what a sweep varies of it. Every field has a default; a file names what differs.

    What a file has under `[emulated]` is merged or left out before this is made of it (`read_document`).
    """

    name: str = Field(default="", pattern=r"^[A-Za-z0-9._-]*$")
    server: Server = Server()
    load: Load = Load()
    snapshot: Snapshot = Snapshot()
    run: Run = Run()
    sweep: Sweep = Sweep()

    @model_validator(mode="after")
    def _agree(self) -> Workload:
        faults = []
        if self.server.engine == "keydb" and self.server.threads > KEYDB_THREADS:
            faults.append(f"server.threads is {self.server.threads}, but KeyDB has {KEYDB_THREADS} at most")
        if self.server.keys < 1:
            faults.append("server.size is smaller than server.value_size: not one key fits")
        if self.server.keys >= 16**KEY_BYTES:
            faults.append(f"server.size / server.value_size is {self.server.keys} keys, but only 16^{KEY_BYTES} exist")
        last = self.snapshot.at + (self.snapshot.count - 1) * self.snapshot.every
        if last >= self.run.limit:
            faults.append(
                f"the last snapshot is due at {format_time(last)}, but run.limit is {format_time(self.run.limit)}"
            )
        for name in self.server.config:
            if key := _PINNED.get(name.lower()):
                faults.append(f"server.config.{name} would override {key}: {key} is how to set it")
        if self.run.duration > self.run.limit:
            faults.append("run.duration is longer than run.limit")
        if not any(int(part) for part in self.load.set_get.split(":")):
            faults.append("load.set_get is 0:0, which asks for no query at all")
        faults += self.load.faults(self.server.keys)
        if faults:
            raise ValueError("; ".join(faults))
        return self


def idle_keys(workload: Workload) -> dict[str, str]:
    """The keys that change nothing in this workload whatever their value, by dotted key a phrase that says why.

    What depends on the kernel is not among them: the mechanism knows that. Nor is what a closed-loop generator does not
    do: its notes say that.
    """
    load, snapshot = workload.load, workload.snapshot
    found: dict[str, str] = {}
    if load.keys != "gaussian":
        found |= dict.fromkeys(("load.gaussian_mean", "load.gaussian_sigma"), f"load.keys is {load.keys!r}")
    if load.keys != "zipf":
        found["load.zipf_theta"] = f"load.keys is {load.keys!r}"
    if not int(load.set_get.split(":")[0]):
        found["load.writes"] = f"load.set_get is {load.set_get!r}, which has no SET"
    if snapshot.count == 1:
        found["snapshot.every"] = "snapshot.count is 1"
    return found


def without_effect(workload: Workload) -> dict[str, str]:
    """Those of `idle_keys` that differ from their default: somebody gave them, and they change nothing."""
    given, defaults = workload.model_dump(), Workload().model_dump()

    def value(document: dict[str, Any], key: str) -> object:
        section, name = key.split(".")
        return document[section][name]

    return {key: why for key, why in idle_keys(workload).items() if value(given, key) != value(defaults, key)}


def assigned_keys(assignments: Iterable[str]) -> list[str]:
    """The dotted keys of `--set` assignments, in their order."""
    return [".".join(_parts(assignment.partition("=")[0])) for assignment in assignments]


def refuse_without_effect(keys: Iterable[str], workloads: Sequence[Workload], given: str = "--set") -> None:
    """BadInput for a key that changes nothing in any of the workloads, which are a sweep's cells or a run's one.

    `given` says how the keys were given, for the sentence.
    """
    idle = [idle_keys(workload) for workload in workloads]
    for key in keys:
        if idle and all(key in one for one in idle):
            raise BadInput(f"{given} {key} has no effect: {idle[0][key]}. Leave it out, or change that.")


def refuse_sweep_keys(assignments: Iterable[str]) -> None:
    """BadInput for a `--set` of a sweep's key where a single run is made."""
    for key in assigned_keys(assignments):
        if key == "sweep" or key.startswith("sweep."):
            raise BadInput(f"--set {key} has no effect on a single run: use `forktail sweep`, or leave it out.")


def _parts(key: str) -> list[str]:
    """The names in a key, which is written as in TOML: server.size, or sweep.vary."server.size"."""
    parts = []
    try:
        inner: Any = tomllib.loads(f"{key} = 0")
        while isinstance(inner, dict):
            ((part, inner),) = inner.items()
            parts.append(part)
    except ValueError:
        raise BadInput(f"{key!r} is no key: write it as in TOML, for example server.size.") from None
    return parts


def assign(document: dict[str, Any], key: str, value: object) -> None:
    """Put a value under a dotted key, as in server.size."""
    *sections, last = _parts(key)
    place = document
    for section in sections:
        place = place.setdefault(section, {})
        if not isinstance(place, dict):
            raise BadInput(f"The key {key} cannot be set: {section} is a value, not a section.")
    place[last] = value


def _set(document: dict[str, Any], assignment: str) -> None:
    """Apply one `--set key=value`, which the sweep then does not vary; the value is TOML, else a bare string."""
    key, equals, text = assignment.partition("=")
    if not equals or not key.strip():
        raise BadInput(f"--set {assignment!r} is no assignment: write it as in --set server.size=1GiB.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    assign(document, key, value)
    # Else the sweep would put its own values over this one, and say nothing.
    match document.get("sweep"):
        case {"vary": dict() as varied}:
            varied.pop(".".join(_parts(key)), None)


def _merge(document: dict[str, Any], others: dict[str, Any]) -> None:
    for key, value in others.items():
        here = document.get(key)
        if isinstance(here, dict) and isinstance(value, dict):
            _merge(here, value)
        else:
            document[key] = value


def _emulated(document: dict[str, Any], path: Path) -> dict[str, Any]:
    scaled = document.get("emulated", {})
    if not isinstance(scaled, dict):
        raise BadInput(f"The workload {path}: emulated is a value: make it a section, as in [emulated.load].")
    if not isinstance(scaled.get(_ICOUNT, False), bool):
        raise BadInput(f"The workload {path}: emulated.{_ICOUNT} is {scaled[_ICOUNT]!r}: give true or false.")
    return scaled


def wants_icount(path: Path) -> bool:
    """Whether an emulated machine is to count time in instructions for the workload: `emulated.icount`."""
    return bool(_emulated(_read(path), path).get(_ICOUNT, False))


def _read(path: Path) -> dict[str, Any]:
    return read_toml(path, "workload", "one of the files in workloads/")


def read_document(path: Path, assignments: Iterable[str] = (), emulated: bool = False) -> dict[str, Any]:
    """The TOML document of a workload file, not validated yet.

    Its `[emulated]` section, which is laid out like the file, replaces values where the machine is `emulated`;
    `--set` assignments have the last word. What it says of the machine itself is left to `wants_icount`.
    """
    document = _read(path)
    document.setdefault("name", path.stem)
    scaled = _emulated(document, path)
    scaled.pop(_ICOUNT, None)
    document.pop("emulated", None)
    if scaled:
        ordinary = copy.deepcopy(document)
        _merge(document, scaled)
        # A fault in there must be told on every machine, not only on an emulated one.
        validate(document, f"The workload {path} with its [emulated]")
        document = document if emulated else ordinary
    for assignment in assignments:
        _set(document, assignment)
    return document


def validate(document: dict[str, Any], source: str) -> Workload:
    """The workload of a document; BadInput lists every fault at once, one a line, each with its mend."""
    return document_of(Workload, document, source)


def read_workload(path: Path, assignments: Iterable[str] = (), emulated: bool = False) -> Workload:
    """Read a workload file, apply `--set` assignments, validate all of it at once; see `read_document`."""
    return validate(read_document(path, assignments, emulated), f"The workload {path}")


def workload_toml(workload: Workload) -> str:
    """The workload as TOML with every default spelled out: what `workload.toml` of a run directory holds."""
    return tomli_w.dumps(workload.model_dump(exclude={"sweep"}))

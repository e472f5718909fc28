# SPDX-License-Identifier: Apache-2.0
"""The server under test: a fresh process with the pinned configuration, and its end without a trace."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import redis

from forktail.errors import BadInput, EnvironmentLacks, ForktailError, RunFailed
from forktail.measure.cgroup import MemoryCgroup
from forktail.measure.child import start_child
from forktail.measure.engine import EngineProgram, find_program
from forktail.measure.proc import process_bytes
from forktail.workload import Workload

ADDRESS = "127.0.0.1"
_SPARE_CLIENTS = 32
_SECTIONS_TOGETHER = (7,)
"""Before this version INFO takes one section; KeyDB counts on from Redis 6."""
_CAUSE = r"no space left|cannot allocate|resource temporarily|permission denied|bad directive|wrong number of arg"
_FAILURE = r"error|fail|can't|cannot|\*\*\*"


def parse_cpus(text: str) -> set[int]:
    """CPU numbers of a list such as "0-3,8"; ValueError where it is no such list."""
    cpus: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        cpus.update(range(int(first), int(last if dash else first) + 1))
    return cpus


def port_is_free(port: int) -> bool:
    """Whether a server can listen on this port of the loopback address now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ADDRESS, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """A port of the loopback address on which nobody listens now."""
    with socket.socket() as probe:
        probe.bind((ADDRESS, 0))
        return int(probe.getsockname()[1])


def configuration(workload: Workload, program: EngineProgram, port: int, directory: Path, address: str = "") -> str:
    """The server's configuration file: everything that moves a snapshot or a query is pinned.

    It also listens on `address`, where one is given, for a load from another host.
    """
    yes_no = {True: "yes", False: "no"}
    lines = (
        program.directives(workload.server.chosen_threads)
        | {
            "bind": f"{ADDRESS} {address}".strip() if address != ADDRESS else ADDRESS,
            "port": str(port),
            "protected-mode": yes_no[address in ("", ADDRESS)],
            "daemonize": "no",
            "dir": f'"{directory}"',
            "dbfilename": "dump.rdb",
            "logfile": f'"{directory / "server.log"}"',
            "save": '""',
            "appendonly": "no",
            "maxmemory": "0",
            # redis-benchmark connects anew before the server has seen all of its old connections close.
            "maxclients": str(workload.load.clients * (2 if workload.load.closed_loop else 1) + _SPARE_CLIENTS),
            "activedefrag": "no",
            "activerehashing": "yes",
            "rdbcompression": yes_no[workload.server.rdb_compression],
            "rdbchecksum": yes_no[workload.server.rdb_checksum],
            "rdb-save-incremental-fsync": "yes",
            # Older engines stop writes after a failed save; the run must fail by its own words instead.
            "stop-writes-on-bgsave-error": "no",
        }
        | workload.server.config
    )
    return "".join(f"{name} {value}\n" for name, value in lines.items())


class Server:
    """A server that this harness started: `directory` holds its configuration, log and RDB.

    It is in `cgroup`, where one is given, before it runs. EnvironmentLacks where it cannot be put there. Where
    `address` is given, clients of other hosts reach it there.
    """

    def __init__(
        self, workload: Workload, directory: Path, cgroup: MemoryCgroup | None = None, address: str = ""
    ) -> None:
        self.program = find_program(workload)
        self.path = self.program.path
        self.directory = directory
        self.log = directory / "server.log"
        self.rdb = directory / "dump.rdb"
        self.port = workload.server.port or free_port()
        cpus = parse_cpus(workload.server.cpus) if workload.server.cpus else None
        configuration_file = directory / "redis.conf"
        directory.mkdir()
        configuration_file.write_text(
            configuration(workload, self.program, self.port, directory, address), encoding="utf-8"
        )

        with ExitStack() as stack:
            entrance = stack.enter_context(cgroup.procs.open("wb", buffering=0)) if cgroup else None

            def prepare() -> None:
                if entrance is not None:
                    entrance.write(b"0")
                if cpus is not None:
                    os.sched_setaffinity(0, cpus)

            try:
                command = [self.path, configuration_file]
                self.process = start_child(command, stderr=subprocess.STDOUT, prepare=prepare)
            except subprocess.SubprocessError as error:
                # What went wrong between fork and exec is not told; with the CPUs checked before, one thing is left.
                raise EnvironmentLacks(
                    f"The server cannot be put into {cgroup.path if cgroup else 'its place'} ({error}): see that "
                    "nothing limits who may enter cgroups there."
                ) from error
        self.pid = self.process.pid
        # RESP2, as Redis before 6 knows no other.
        self.client = redis.Redis(host=ADDRESS, port=self.port, socket_timeout=60, decode_responses=True, protocol=2)

    def wait_until_ready(self, seconds: float = 15) -> None:
        """Wait for the first PONG; RunFailed with the server's own last words if it does not come up."""
        deadline = time.monotonic() + seconds
        while True:
            if self.process.poll() is not None:
                raise BadInput(f"{self.path} did not start: {self.last_words()}")
            try:
                self.client.ping()
                return
            except redis.RedisError as error:
                if time.monotonic() > deadline:
                    raise RunFailed(f"{self.path} did not answer within {seconds:g} s: {error}.") from error
                time.sleep(0.01)

    def info(self, *sections: str) -> dict[str, Any]:
        """INFO of the given sections, through redis-py; RunFailed when the server is gone."""
        try:
            if self.program.number >= _SECTIONS_TOGETHER or len(sections) < 2:
                return dict(self.client.info(*sections))
            with self.client.pipeline(transaction=False) as together:
                for section in sections:
                    together.info(section)
                return {name: value for reply in together.execute() for name, value in reply.items()}
        except redis.RedisError as error:
            raise self.gone() or RunFailed(f"The server does not answer INFO ({error}).") from error

    def bgsave(self) -> None:
        """Trigger the snapshot; RunFailed when the server refuses, EnvironmentLacks when it could not fork."""
        try:
            self.client.bgsave()
        except redis.ResponseError as error:
            raise self.snapshot_failure(f"The server refused BGSAVE ({error})") from error
        except redis.RedisError as error:
            raise self.gone() or RunFailed(f"The server does not answer BGSAVE ({error}).") from error

    def memory(self) -> dict[str, int]:
        """`used_memory`, `rss_bytes` and `page_table_bytes` now."""
        return {"used_memory": int(self.info("memory")["used_memory"])} | process_bytes(self.pid)

    def serving_threads(self) -> list[int]:
        """The ids of the threads that answer clients, in this PID namespace; empty where KeyDB's log does not tell."""
        if self.program.engine.name != "keydb":
            return [self.pid]
        # Its first thread only waits for these, and a thread for the time and some for background work have no say.
        found = re.findall(r"^\d+:(\d+):M .* Thread \d+ alive", self.log.read_text("utf-8", "replace"), re.MULTILINE)
        return [int(thread) for thread in found]

    def gone(self) -> RunFailed | None:
        """The sentence for a server that died, or None while it lives."""
        code = self.process.poll()
        if code is None:
            return None
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return RunFailed(f"The server (pid {self.pid}) {how} during the run: {self.last_words()}")

    def child_was_killed(self) -> bool:
        """Whether the last snapshot's child was ended by a signal, by the server's log."""
        ends = re.findall(r"Background saving (?:terminated|error).*", self.log.read_text("utf-8", "replace"))
        return bool(ends) and "terminated by signal" in ends[-1]

    def snapshot_failure(self, what: str) -> ForktailError:
        """The sentence for a snapshot that failed, with the server's reason and, where known, its mend."""
        words = self.last_words()
        if "No space left" in words:
            return EnvironmentLacks(f"{what}: {words} Free space at {self.directory}, or choose another --out.")
        if "Resource temporarily unavailable" in words:
            return EnvironmentLacks(f"{what}: {words} Raise the limit of processes (ulimit -u, pids.max).")
        if "Cannot allocate memory" in words:
            return EnvironmentLacks(f"{what}: {words} Free memory, or set vm.overcommit_memory=1.")
        return RunFailed(f"{what}: {words}")

    def last_words(self) -> str:
        """The last telling line of the server's log or, before it has one, of its output."""
        lines: Iterable[str] = ()
        if self.log.exists():
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        elif self.process.poll() is not None and self.process.stdout is not None:
            lines = self.process.stdout.read().decode(errors="replace").splitlines()
        telling = [line for line in lines if line.strip()]
        line = "it left no word."
        # A cause tells more than the failure that it led to, and a failure more than what was said last.
        for pattern in (_CAUSE, _FAILURE, ""):
            matching = [line for line in telling if re.search(pattern, line, re.IGNORECASE)]
            if matching:
                line = matching[-1].strip()
                break
        # Redis heads each line with pid, role, date and level, which say nothing here.
        line = re.sub(r"^\d+:[A-Z] .*? [.\-*#] ", "", line)
        return line if line.endswith((".", "!")) else line + "."

    def end(self) -> None:
        """End the server and its snapshot child, and drop the RDB: the run directory keeps only the truth."""
        self.client.close()
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        for leftover in [self.rdb, *self.directory.glob("temp-*.rdb")]:
            leftover.unlink(missing_ok=True)

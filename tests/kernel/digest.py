# SPDX-License-Identifier: Apache-2.0
"""Run in a guest: whether a server's snapshot is what the server held at the instant of its fork(), under writes.

    python3 digest.py KERNEL THREADS ROUNDS

KERNEL is the flavour that the guest runs; THREADS how many copy after an asynchronous fork(), 0 for fork() as it is.
In each round DEBUG DIGEST is taken and a BGSAVE begun with no write in between, while others write all the time; a
second server loads the RDB and takes its own DEBUG DIGEST. A line of JSON a round, on standard output. It ends with 1
when a round found another digest, and with 2 when a fork() was not of the kind asked for.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from forktail.measure.mechanism import Mechanism, fork_mechanism
from forktail.workload import Snapshot

KEYS = 9216
"""Of 1000 bytes each; a digest takes time, so there are few."""
FILLERS = 7
"""As large, before each key, and deleted: so that the keys are spread over more page tables than min_tables."""
VALUE = 1000
TRACING = Path("/sys/kernel/tracing")
TABLES_AT_LEAST = 32

_PAUSE_MS = 10 * 60 * 1000
_WRITES_AT_ONCE = 200

WRITERS = (
    ("setrange", "key:__rand_int__", "8", "__rand_int__-__rand_int__"),
    ("set", "key:__rand_int__", "__rand_int__" + "x" * (VALUE - 12)),
    ("hset", "hash:__rand_int__", "field", "__rand_int__"),
)
"""Commands that redis-benchmark repeats with random numbers, each by a connection or more of its own."""


_FILL = """for number = 0, ARGV[1] - 1 do
    for filler = 1, ARGV[2] do redis.call('SET', 'filler:' .. number .. ':' .. filler, ARGV[3]) end
    redis.call('SET', string.format('key:%012d', number), ARGV[3])
end"""
_DELETE = """for number = 0, ARGV[1] - 1 do
    for filler = 1, ARGV[2] do redis.call('DEL', 'filler:' .. number .. ':' .. filler) end
end"""


@contextmanager
def serving(name: str, directory: Path, mechanism: Mechanism | None) -> Iterator[redis.Redis]:
    """A server with no snapshots but those that are asked for, forking as the mechanism says."""
    socket = directory / f"{name}.sock"
    command = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", str(directory)]
    command += ["--enable-debug-command", "yes", "--rdbcompression", "no", "--dbfilename", "dump.rdb"]
    cgroup = mechanism.cgroup if mechanism else None
    if cgroup:
        command = ["sh", "-c", f'echo $$ > {cgroup.procs} && exec "$@"', "sh", *command]
    with (directory / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        # It may take long, and nothing is to be done twice.
        connection = redis.Redis(unix_socket_path=str(socket), socket_timeout=None, retry=Retry(NoBackoff(), 0))
        for _ in range(300):
            try:
                connection.ping()
                break
            except RedisError:
                time.sleep(0.1)
        if mechanism:
            mechanism.adopt(process.pid)
        yield connection
    finally:
        process.kill()
        process.wait()


def fill(server: redis.Redis) -> None:
    """By scripts: an emulated CPU takes long to talk about so many keys."""
    server.eval(_FILL, 0, KEYS, FILLERS, b"x" * VALUE)
    server.eval(_DELETE, 0, KEYS, FILLERS)


@contextmanager
def writing(socket: Path) -> Iterator[None]:
    with ExitStack() as stack:
        for command in WRITERS:
            benchmark = ["redis-benchmark", "-s", str(socket), "-c", "2", "-P", "4", "-n", "2000000000", "-q"]
            keys = ["-r", str(KEYS)]
            process = subprocess.Popen(
                [*benchmark, *keys, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
        yield


def trace(server_pid: int) -> tuple[bool, int, int]:
    """Since the last call: whether the last fork() was finished by another than the parent, the tables it had copied
    itself otherwise, and how many the parent copied afterwards."""
    text = (TRACING / "trace").read_text()
    (TRACING / "trace").write_text("")
    done = re.findall(rf"-(\d+) .* fork_pt_done: tgid={server_pid} .*tables=(\d+)", text)
    syncs = len(re.findall(rf"fork_pt_sync_end: tgid={server_pid} .*tables=1", text))
    if not done:
        sys.exit("No fork() of the server is in the trace.")
    by, tables = done[-1]
    return int(by) != server_pid, int(tables), syncs


def digest_of(server: redis.Redis) -> bytes:
    return bytes(server.execute_command("DEBUG", "DIGEST"))  # type: ignore[no-untyped-call]


def digest_and_save(server: redis.Redis) -> bytes:
    """The digest at the instant of the fork() of a snapshot that is then under way.

    Others' writes pause in between. A transaction would not do: the server puts off a BGSAVE in it until after.
    """
    pipe = server.pipeline(transaction=False)
    pipe.client_pause(_PAUSE_MS, all=False)
    pipe.execute_command("DEBUG", "DIGEST")  # type: ignore[no-untyped-call]
    pipe.bgsave()
    pipe.info("persistence")
    pipe.client_unpause()
    # The others come a little later, when tables may be copied already.
    for number in range(_WRITES_AT_ONCE):
        pipe.setrange(f"key:{number * 7919 % KEYS:012d}", 8, f"{time.monotonic_ns():016d}")
    _, digest, _, persistence, *_ = pipe.execute()
    if not persistence["rdb_bgsave_in_progress"]:
        sys.exit("The server did not fork at once.")
    return bytes(digest)


def saved(server: redis.Redis) -> bool:
    while True:
        persistence = server.info("persistence")
        if not persistence["rdb_bgsave_in_progress"]:
            return bool(persistence["rdb_last_bgsave_status"] == "ok")
        time.sleep(0.02)


def main(kernel: str, threads: int, rounds: int) -> int:
    snapshot = Snapshot(copy_threads=threads) if threads else Snapshot(fork="default")
    differing = 0
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm")))
        mechanism = stack.enter_context(fork_mechanism(kernel, snapshot))
        server = stack.enter_context(serving("server", directory, mechanism))
        reader = stack.enter_context(serving("reader", directory, None))
        fill(server)
        pid = server.info("server")["process_id"]
        (TRACING / "events/fork_pt/enable").write_text("1")
        stack.enter_context(writing(directory / "server.sock"))
        time.sleep(2)
        for number in range(rounds):
            (TRACING / "trace").write_text("")
            mechanism.verify()
            commands, began = server.info("stats")["total_commands_processed"], time.monotonic()
            digest = digest_and_save(server)
            if not saved(server):
                sys.exit("The snapshot failed.")
            rate = (server.info("stats")["total_commands_processed"] - commands) / (time.monotonic() - began)
            late, tables, syncs = trace(pid)
            reader.execute_command("DEBUG", "RELOAD", "NOSAVE")  # type: ignore[no-untyped-call]
            loaded, now = digest_of(reader), digest_of(server)
            differing += digest != loaded
            result = {"round": number, "equal": digest == loaded, "moved_on": digest != now, "late": late}
            result |= {"tables": tables, "copied_by_parent": syncs, "writes_per_s": round(rate)}
            print(json.dumps(result | {"digest": digest.decode(), "loaded": loaded.decode()}), flush=True)
            as_asked = late == (kernel == "async-fork" and threads > 0)
            if kernel == "odf" and threads:
                as_asked = tables < TABLES_AT_LEAST
            if not as_asked:
                print(f"fork() was not as asked for: {result}", file=sys.stderr)
                return 2
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))

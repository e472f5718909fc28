# SPDX-License-Identifier: Apache-2.0
"""What the probe costs a Redis server in each of its states: attached, armed before a fork, and inside a window.

One redis-benchmark sends SETs all the time, and the probe goes from one state to the other and back every fraction of a
second (off, on, on, off), so that a host that is slower for a while is slower for both. Of each slice is taken what the
server did: its SETs a second, and its main thread's CPU time for each SET, which suffers less from a crowded host. The
cost is the median over the quadruples, with the quartiles. With one request on the way in each connection (P=1) nearly
every SET is a system call and a switch of tasks; with 16 (P=16) the SETs themselves weigh more. A window is a BGSAVE
with a slow child; SETs to random keys make it a CoW fault for nearly each of them, until most pages are copied.

    sudo python benchmarks/probe.py --probe build/bpf/forktail-probe
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import redis

VALUE_BYTES = 1024
PIPELINES = (1, 16)
CLIENTS = 8
STATES = ("attached", "armed", "in the window")
SETTLE_S = 0.05
"""After each change of state, before its slice begins."""
Slice = Literal["off", "on"]
ABBA: tuple[Slice, ...] = ("off", "on", "on", "off")


@dataclass(frozen=True)
class Work:
    """What the server did since it started, or within a stretch."""

    sets: int
    cpu_ns: int
    wall_ns: int
    faults: int

    def since(self, earlier: Work) -> Work:
        return Work(
            self.sets - earlier.sets,
            self.cpu_ns - earlier.cpu_ns,
            self.wall_ns - earlier.wall_ns,
            self.faults - earlier.faults,
        )

    def __add__(self, other: Work) -> Work:
        return self.since(Work(-other.sets, -other.cpu_ns, -other.wall_ns, -other.faults))


@dataclass
class Server:
    pid: int
    port: int
    keys: int
    client: redis.Redis

    def work(self) -> Work:
        stat = Path(f"/proc/{self.pid}/task/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        cpu_ns = int(Path(f"/proc/{self.pid}/task/{self.pid}/schedstat").read_text().split()[0])
        sets = int(self.client.info("stats")["total_commands_processed"])
        return Work(sets, cpu_ns, time.monotonic_ns(), int(stat[7]))

    def slice(self, seconds: float) -> Work:
        time.sleep(SETTLE_S)
        before = self.work()
        time.sleep(seconds)
        return self.work().since(before)

    @contextmanager
    def load(self, pipeline: int) -> Iterator[None]:
        """SETs over keys that exist, for as long as the context lasts."""
        command = ["redis-benchmark", "-p", str(self.port), "-t", "set", "-d", str(VALUE_BYTES), "-P", str(pipeline)]
        command += ["-c", str(CLIENTS), "-r", str(self.keys), "-n", "2000000000", "-q"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            time.sleep(0.5)
            yield
        finally:
            process.kill()
            process.wait()

    @contextmanager
    def window(self) -> Iterator[None]:
        self.client.bgsave()
        try:
            yield
            if not self.client.info("persistence")["rdb_bgsave_in_progress"]:
                raise SystemExit("The snapshot ended before the slices: raise --keys.")
        finally:
            for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
                # By this signal Redis itself ends a child that it no longer wants.
                os.kill(int(child), signal.SIGUSR1)
            while self.client.info("persistence")["rdb_bgsave_in_progress"]:
                time.sleep(0.02)


@contextmanager
def server(keys: int) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as directory, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        command = ["redis-server", "--port", str(port), "--save", "", "--dir", directory]
        # A snapshot slow enough to outlast the run: the window is what is measured.
        command += ["--enable-debug-command", "local", "--rdb-key-save-delay", "100"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        client = redis.Redis(port=port, retry=redis.retry.Retry(redis.backoff.ConstantBackoff(0.1), 50))
        try:
            client.ping()
            # The names of redis-benchmark's keys, twelve digits wide.
            pipeline = client.pipeline(transaction=False)
            for key in range(keys):
                pipeline.set(f"key:{key:012d}", b"x" * VALUE_BYTES)
                if key % 1000 == 999:
                    pipeline.execute()
            pipeline.execute()
            yield Server(process.pid, port, keys, client)
        finally:
            client.close()
            process.kill()
            process.wait()


class Probe:
    """forktail-probe, attached."""

    def __init__(self, program: str, pid: int, events: Path, options: list[str]) -> None:
        command = [program, "--pid", str(pid), "--events", str(events), *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.header: dict[str, Any] = self._expect("ready")["header"]
        self.events: dict[str, int] = {}
        self.armed = False

    def _expect(self, event: str) -> dict[str, Any]:
        assert self.process.stdout
        for line in self.process.stdout:
            said: dict[str, Any] = json.loads(line)
            if said["event"] == event:
                return said
        raise SystemExit("forktail-probe ended early")

    def say(self, command: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def arm(self) -> None:
        if not self.armed:
            self.say("arm")
            self._expect("armed")
        self.armed = True

    def disarm(self) -> None:
        if self.armed:
            self.say("disarm")
            self._expect("disarmed")
        self.armed = False

    def stop(self) -> None:
        self.say("stop")
        self.events = self._expect("end")["trailer"]["events"]
        self.process.wait()


Quadruple = tuple[Work, Work]
"""The work of a state without the probe, and with it, over four slices."""


def alternate(target: Server, seconds: float, switch: Callable[[Slice], None]) -> Quadruple:
    """Take four slices; `switch` changes to the state of each."""
    work = {state: Work(0, 0, 0, 0) for state in ABBA}
    for state in ABBA:
        switch(state)
        work[state] += target.slice(seconds)
    return work["off"], work["on"]


def attached(target: Server, start: Callable[[], Probe], seconds: float) -> Quadruple:
    probe: Probe | None = None

    def switch(state: Slice) -> None:
        nonlocal probe
        if state == "on" and probe is None:
            probe = start()
        elif state == "off" and probe is not None:
            probe.stop()
            probe = None

    return alternate(target, seconds, switch)


def armed(target: Server, probe: Probe, seconds: float) -> Quadruple:
    def switch(state: Slice) -> None:
        if state == "on":
            probe.arm()
        else:
            probe.disarm()

    return alternate(target, seconds, switch)


def cost(values: list[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{100 * middle:+5.1f} % ({100 * low:+.1f} to {100 * high:+.1f})"


def tell(name: str, quadruples: list[Quadruple]) -> None:
    slower = [1 - (on.sets / on.wall_ns) / (off.sets / off.wall_ns) for off, on in quadruples]
    dearer = [(on.cpu_ns / on.sets) / (off.cpu_ns / off.sets) - 1 for off, on in quadruples]
    rate = statistics.median(off.sets / off.wall_ns * 1e9 for off, _ in quadruples)
    took = statistics.median(off.cpu_ns / off.sets / 1000 for off, _ in quadruples)
    faults = statistics.median((off.faults + on.faults) / (off.sets + on.sets) for off, on in quadruples)
    print(
        f"{name:20} {rate:7.0f} SET/s: {cost(slower):24} fewer;  {took:5.2f} us of CPU a SET: {cost(dearer):24} more;"
        f"  {faults:.2f} faults a SET",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--probe", default=shutil.which("forktail-probe"), help="the program (found in PATH)")
    parser.add_argument("--measure", help="measure no more than this: forktail-probe's --measure (all)")
    parser.add_argument("--avoid", help="probes not to be used: forktail-probe's --avoid (none)")
    parser.add_argument("--state", choices=STATES, action="append", help="only this state (all)")
    parser.add_argument("--repeats", type=int, default=15, help="quadruples of slices for each state")
    parser.add_argument("--keys", type=int, default=400_000, help="of 1 KiB each")
    parser.add_argument("--seconds", type=float, default=0.2, help="the length of a slice")
    arguments = parser.parse_args()
    if not arguments.probe:
        parser.error("forktail-probe is not in PATH: give --probe FILE.")
    options = [f"--{name}={value}" for name in ("measure", "avoid") if (value := getattr(arguments, name))]
    wanted = arguments.state or STATES

    with tempfile.TemporaryDirectory() as directory, server(arguments.keys) as target:

        def start() -> Probe:
            return Probe(arguments.probe, target.pid, Path(directory) / "events.bin", options)

        probe = start()
        for measurement, chosen in probe.header["probes"].items():
            print(f"{measurement:16} {chosen['probe']} ({chosen['label']})")
        probe.stop()
        for pipeline in PIPELINES:
            with target.load(pipeline):
                if "attached" in wanted:
                    tell(
                        f"P={pipeline}, attached",
                        [attached(target, start, arguments.seconds) for _ in range(arguments.repeats)],
                    )
                probe = start()
                if "armed" in wanted:
                    tell(
                        f"P={pipeline}, armed",
                        [armed(target, probe, arguments.seconds) for _ in range(arguments.repeats)],
                    )
                if "in the window" in wanted:
                    quadruples = []
                    for _ in range(arguments.repeats):
                        with target.window():
                            quadruples.append(armed(target, probe, arguments.seconds))
                    tell(f"P={pipeline}, in the window", quadruples)
                probe.stop()
                print(f"events: {probe.events}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

# SPDX-License-Identifier: Apache-2.0
"""What the probe costs a Redis server: SETs a second without it, with it attached, and with it armed.

Each repeat takes a pair with the probe and one without, in alternating order, so that a machine that slows down slows
both alike. Inside a window each run has its own BGSAVE, probe or none: the window's own cost (the child's use of a CPU,
the CoW faults) is in both.

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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

VALUE_BYTES = 1024
PIPELINE = 16
CLIENTS = 8


@dataclass
class Server:
    pid: int
    port: int
    keys: int
    client: redis.Redis

    def set_rate(self, requests: int) -> float:
        """SETs a second over keys that exist."""
        command = ["redis-benchmark", "-p", str(self.port), "-t", "set", "-d", str(VALUE_BYTES), "-P", str(PIPELINE)]
        command += ["-c", str(CLIENTS), "-r", str(self.keys), "-n", str(requests), "--csv"]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        return float(output.splitlines()[-1].split(",")[1].strip('"'))

    def snapshot(self) -> None:
        self.client.bgsave()

    def wait_for_snapshot(self) -> None:
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

    def __init__(self, program: str, pid: int, events: Path) -> None:
        command = [program, "--pid", str(pid), "--events", str(events)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.header: dict[str, Any] = self._expect("ready")["header"]
        self.events: dict[str, int] = {}

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
        self.say("arm")
        self._expect("armed")

    def stop(self) -> None:
        self.say("stop")
        self.events = self._expect("end")["trailer"]["events"]
        self.process.wait()


def in_window(target: Server, requests: int) -> float:
    target.snapshot()
    rate = target.set_rate(requests)
    if not target.client.info("persistence")["rdb_bgsave_in_progress"]:
        raise SystemExit("The snapshot ended before the run: raise --keys or lower --requests.")
    for child in Path(f"/proc/{target.pid}/task/{target.pid}/children").read_text().split():
        # By this signal Redis itself ends a child that it no longer wants.
        os.kill(int(child), signal.SIGUSR1)
    target.wait_for_snapshot()
    return rate


def compare(name: str, without: list[float], with_probe: list[float]) -> None:
    ratio = statistics.median(b / a for a, b in zip(without, with_probe, strict=True))
    print(
        f"{name:22} {statistics.median(without):9.0f} -> {statistics.median(with_probe):9.0f} SET/s"
        f"   x {ratio:.3f}   ({100 * (ratio - 1):+.1f} %)"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--probe", default=shutil.which("forktail-probe"), help="the program (found in PATH)")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--keys", type=int, default=200_000, help="of 1 KiB each")
    parser.add_argument("--requests", type=int, default=400_000, help="SETs a run")
    arguments = parser.parse_args()
    if not arguments.probe:
        parser.error("forktail-probe is not in PATH: give --probe FILE.")

    idle: list[float] = []
    window: list[float] = []
    attached: list[float] = []
    armed: list[float] = []
    with tempfile.TemporaryDirectory() as directory, server(arguments.keys) as target:

        def measure_bare() -> None:
            idle.append(target.set_rate(arguments.requests))
            window.append(in_window(target, arguments.requests))

        def measure_probed() -> Probe:
            probe = Probe(arguments.probe, target.pid, Path(directory) / "events.bin")
            attached.append(target.set_rate(arguments.requests))
            probe.arm()
            armed.append(in_window(target, arguments.requests))
            probe.stop()
            return probe

        target.set_rate(arguments.requests)
        for repeat in range(arguments.repeats):
            if repeat % 2:
                probe = measure_probed()
                measure_bare()
            else:
                measure_bare()
                probe = measure_probed()
        for measurement, chosen in probe.header["probes"].items():
            print(f"{measurement:16} {chosen['probe']} ({chosen['label']})")
    compare("attached, no window", idle, attached)
    compare("armed, inside a window", window, armed)
    print(f"events of the last window: {probe.events}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

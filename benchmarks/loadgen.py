# SPDX-License-Identifier: Apache-2.0
"""How precise and how cheap forktail-load is, beside its peers on the same server: `python benchmarks/loadgen.py`.

Takes forktail-load from FORKTAIL_LOAD, from beside the interpreter, or from the PATH.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

KEYS = 500_000
VALUE_BYTES = 1024
RATE = 50_000
SECONDS = 10
CONNECTIONS = 50
FILL_CONNECTIONS, FILL_PIPELINE = 4, 64


def find_generator() -> str:
    beside = Path(sys.executable).with_name("forktail-load")
    found = os.environ.get("FORKTAIL_LOAD") or (str(beside) if beside.exists() else shutil.which("forktail-load"))
    return found or sys.exit("forktail-load is not installed, and FORKTAIL_LOAD does not name it.")


@contextmanager
def redis_server(directory: Path) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    settings = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)]
    with subprocess.Popen(["redis-server", *settings], stdout=subprocess.DEVNULL) as server:
        try:
            wait_for(port)
            yield port
        finally:
            server.kill()


def wait_for(port: int) -> None:
    for _ in range(100):
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit("redis-server did not start.")


def forktail_load(generator: str, command: str, port: int, **options: object) -> dict[str, Any]:
    """The `end` line of a run or a fill."""
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
    words += [f"--port={port}", f"--keys={KEYS}", f"--value-bytes={VALUE_BYTES}"]
    done = subprocess.run([generator, command, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
    end: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return end


def redis_benchmark(port: int, requests: int, *words: str) -> dict[str, float]:
    """Its CSV row for random SETs, as numbers."""
    command = ["redis-benchmark", "-p", str(port), "-t", "set", "-n", str(requests), "-r", str(KEYS)]
    command += ["-d", str(VALUE_BYTES), "--csv", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (row,) = csv.DictReader(done.stdout.splitlines())
    return {name: float(value) for name, value in row.items() if name != "test"}


def memtier(port: int, directory: Path) -> dict[str, float]:
    """Its totals at the same rate in one thread, as numbers."""
    report = directory / "memtier.json"
    command = ["memtier_benchmark", "-p", str(port), "-t", "1", "-c", str(CONNECTIONS), "--ratio=1:0"]
    command += ["-d", str(VALUE_BYTES), f"--key-maximum={KEYS}", f"--test-time={SECONDS}", "--hide-histogram"]
    command += [f"--rate-limiting={RATE // CONNECTIONS}", "--print-percentiles=50,99,99.9", f"--json-out-file={report}"]
    before = os.times()
    subprocess.run(command, capture_output=True, check=True)
    after = os.times()
    totals = json.loads(report.read_text())["ALL STATS"]["Totals"]
    percentiles = totals["Percentile Latencies"]
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return {
        "rate": totals["Ops/sec"],
        "cpu_us": cpu_s / (totals["Ops/sec"] * SECONDS) * 1e6,
        **{name: percentiles[f"{name}0"] * 1000 for name in ("p50.0", "p99.0", "p99.9")},
    }


def compare_fill(generator: str, port: int) -> None:
    """Twice, because the first writing of a key also grows the server's memory."""
    print(f"Fill: {KEYS:,} keys of {VALUE_BYTES} B, {FILL_CONNECTIONS} connections, pipeline {FILL_PIPELINE}")
    shape = ["-c", str(FILL_CONNECTIONS), "-P", str(FILL_PIPELINE)]
    for state in ("new keys", "overwriting"):
        ours = forktail_load(generator, "fill", port, connections=FILL_CONNECTIONS, pipeline=FILL_PIPELINE)[
            "keys_per_s"
        ]
        print(f"  forktail-load    {state:12} {ours:>10,.0f} keys/s")
    peer = redis_benchmark(port, KEYS, *shape)["rps"]
    print(f"  redis-benchmark  {'overwriting':12} {peer:>10,.0f} keys/s   forktail-load: {ours / peer:.2f} x")


def print_row(name: str, cells: list[str]) -> None:
    print(f"  {name:28}" + "".join(f"{cell:>12}" for cell in cells))


def compare_run(generator: str, port: int, directory: Path) -> None:
    print(f"\nRun: {RATE:,} SETs/s over {CONNECTIONS} connections for {SECONDS} s")
    print_row("", ["rate/s", "rate error", "p50 us", "p99 us", "p99.9 us", "max us", "CPU us/req"])

    end = forktail_load(
        generator,
        "run",
        port,
        rate=RATE,
        queries=RATE * SECONDS,
        connections=CONNECTIONS,
        log=directory / "queries.bin",
    )
    cost = end["cost"]
    cpu_us, user_us = ((cost["user_s"] + system) / end["sent"] * 1e6 for system in (cost["system_s"], 0))
    for what in ("latency", "lag"):
        quantiles = [f"{end[f'{what}_us'][name]:.1f}" for name in ("p50", "p99", "p999", "max")]
        rate = [f"{end['rate_sent']:,.0f}", f"{end['rate_error']:.4%}"] if what == "latency" else ["", ""]
        print_row(f"forktail-load {what}", rate + quantiles + ([f"{cpu_us:.2f}"] if rate[0] else []))

    closed = redis_benchmark(port, RATE * SECONDS, "-c", str(CONNECTIONS))
    quantiles = [f"{closed[f'{name}_latency_ms'] * 1000:.1f}" for name in ("p50", "p99")]
    print_row(
        "redis-benchmark, closed loop",
        [f"{closed['rps']:,.0f}", "-", *quantiles, "-", f"{closed['max_latency_ms'] * 1000:.1f}", "-"],
    )

    if shutil.which("memtier_benchmark"):
        peer = memtier(port, directory)
        quantiles = [f"{peer[name]:.1f}" for name in ("p50.0", "p99.0", "p99.9")]
        error = f"{peer['rate'] / RATE - 1:.4%}"
        print_row("memtier_benchmark", [f"{peer['rate']:,.0f}", error, *quantiles, "-", f"{peer['cpu_us']:.2f}"])
    else:
        print("  memtier_benchmark is not on the PATH: left out")
    print(f"  forktail-load in user space: {user_us:.2f} us a request, {cost['minor_faults']} page faults")


def main() -> None:
    generator = find_generator()
    with tempfile.TemporaryDirectory() as scratch, redis_server(Path(scratch)) as port:
        compare_fill(generator, port)
        compare_run(generator, port, Path(scratch))


if __name__ == "__main__":
    main()

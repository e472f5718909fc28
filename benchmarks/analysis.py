# SPDX-License-Identifier: Apache-2.0
"""How long the analysis of a large run takes, and how much memory: `python benchmarks/analysis.py`.

Makes a run directory of a simulated server (one FIFO queue, a fork of 60 ms, a copy-on-write fault per overwritten
page), analyses it in a fresh process, and prints wall time, import included, and peak resident memory. The same p99 by
pandas and by DuckDB, where they are installed, stands beside as a peer.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

SERVER, CHILD = 4242, 4300
ORIGIN = 10**12
FORK_NS = 60_000_000

_ANALYSE = """
import resource, sys, time
from pathlib import Path
begun = time.perf_counter()
from forktail.analysis import analyse
summary = analyse(Path(sys.argv[1]), write=sys.argv[2] == "all").document
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(time.perf_counter() - begun, peak, summary["valid"], summary["queries"]["snapshot"]["p99_us"])
print(summary["answer"], *summary["reasons"], *summary["warnings"], sep="\\n")
"""

_PEERS = {
    "pandas": """
import sys, pandas
frame = pandas.read_parquet(sys.argv[1], columns=["latency_ns", "class"])
of_class = frame.loc[frame["class"] == "snapshot", "latency_ns"]
print(of_class.quantile(0.99, interpolation="higher") / 1000)
""",
    "duckdb": """
import sys, duckdb
query = "select quantile_disc(latency_ns, 0.99) from read_parquet(?) where class = 'snapshot'"
print(duckdb.execute(query, [sys.argv[1]]).fetchone()[0] / 1000)
""",
}


def simulate(queries: int, rate: float, faults: int, random: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Intended and completed times of a FIFO server that serves in 8 us and stalls for a fork and for faults."""
    intended = ORIGIN + np.cumsum(random.exponential(1e9 / rate, queries)).astype(np.int64)
    lag = random.exponential(3_000, queries).astype(np.int64)
    fork = intended[queries // 4]
    after = fork + FORK_NS + np.sort(random.exponential(3e9, faults)).astype(np.int64)
    fault_start = after + np.arange(faults) * 4_000
    starts = np.concatenate(([fork], fault_start))
    lengths = np.concatenate(([FORK_NS], random.integers(800, 2500, faults)))
    # In the time that the server has to itself the queue is an ordinary one; the stalls are put back afterwards.
    stalled = np.concatenate(([0], np.cumsum(lengths)))
    arrived = intended + lag
    order = np.argsort(arrived, kind="stable")
    sorted_arrival = arrived[order]
    place = np.searchsorted(starts, sorted_arrival)
    inside = np.minimum(sorted_arrival, np.concatenate(([0], starts + lengths))[place])
    own = np.where(place > 0, np.maximum(sorted_arrival, inside) - stalled[place], sorted_arrival)
    previous_end = np.concatenate(([0], starts + lengths))[place]
    own = np.where(sorted_arrival < previous_end, previous_end - stalled[place], own)
    service = random.gamma(8, 1_000, queries).astype(np.int64)
    served = np.cumsum(service)
    done = served + np.maximum.accumulate(own - (served - service))
    real = done + stalled[np.searchsorted(starts - stalled[:-1], done)]
    completed = np.empty_like(real)
    completed[order] = real + 30_000
    return intended, lag, completed, starts, lengths


def make_run(directory: Path, queries: int, rate: float, faults: int) -> None:
    """Write a whole run directory of the simulated server."""
    random = np.random.default_rng(1)
    intended, lag, completed, starts, lengths = simulate(queries, rate, faults, random)
    words = np.empty((queries, 4), dtype="<u8")
    words[:, 0] = intended
    words[:, 1] = lag.astype(np.uint64)
    words[:, 2] = (completed - intended).astype(np.uint64) | random.integers(0, 2**16, queries, "<u8") << np.uint64(44)
    words[:, 3] = 1 << 48 | 1 << 57
    header = struct.pack("<8sIIIIQQQdQ", b"FTQLOG\0\0", 2, 64, 32, 50, queries, ORIGIN, 1, rate, 0)
    (directory / "queries.bin").write_bytes(header + words.tobytes())

    fields = ["start", "duration", "context", "aux", "sequence", "tgid", "tid", "cpu", "kind"]
    events = np.zeros(len(starts) + 2, dtype=list(zip(fields, ["<u8"] * 4 + ["<u4"] * 3 + ["<u2"] * 2, strict=True)))
    events["start"][1:-1], events["duration"][1:-1], events["kind"][1:-1] = starts, lengths, 4
    events["aux"][1:-1] = 1
    window_end = int(max(starts[-1] + lengths[-1], starts[0] + 10**9)) + 1
    events[0] = (starts[0] + 10_000, FORK_NS * 97 // 100, 9000, 0, 0, 0, 0, 0, 2)
    events[1] = (starts[0], FORK_NS, 0x1200011, CHILD, 0, 0, 0, 0, 1)
    events[-1] = (window_end, 0, CHILD, 0, 0, 0, 0, 0, 7)
    events["sequence"] = np.arange(len(events))
    events["tgid"] = events["tid"] = SERVER
    header = struct.pack("<8sIIIIQQQQQ", b"FTELOG\0\0", 1, 64, 48, SERVER, len(events), ORIGIN, 0, 0, 0)
    (directory / "events.bin").write_bytes(header + events.tobytes())

    emitted = {"seen": len(events), "emitted": len(events), "dropped": 0, "suppressed": 0}
    documents = {
        "environment.json": {"kernel": {"release": "simulated"}},
        "load.json": {
            "schema": "forktail.load/2",
            **dict.fromkeys(("intended", "sent", "completed", "log_records"), queries),
            **dict.fromkeys(("errors", "lost", "in_flight", "unsent"), 0),
            "rate_wanted": rate,
            "rate_intended": rate,
            "rate_sent": rate,
            "rate_error": 0.0,
            "conserved": True,
        },
        "probe.json": {
            "schema": "forktail.events/1",
            "probes": {name: {"probe": "simulated", "label": "exact", "rejected": []} for name in ("fork", "fault")},
            "trailer": {"events": emitted, "unmatched": {}},
        },
        "run.json": {
            "schema": "forktail.run/1",
            "name": "simulated",
            "kernel": {"flavour": "default", "release": "simulated"},
            "marks": {
                "load_start_ns": ORIGIN,
                "warmup_end_ns": ORIGIN + 2 * 10**9,
                "load_end_ns": int(completed.max()),
                "snapshots": [{"trigger": "bgsave", "requested_ns": int(starts[0]) - 1000}],
            },
            "server": {"engine": "redis", "version": "simulated", "payload_bytes": 8 << 30},
            "info": {
                "latest_fork_usec": FORK_NS // 1000,
                "rdb_last_bgsave_time_sec": (window_end - int(starts[0])) // 10**9,
                "rdb_last_bgsave_status": "ok",
            },
        },
    }
    for name, document in documents.items():
        (directory / name).write_text(json.dumps(document))
    (directory / "info.jsonl").write_text("")
    (directory / "workload.toml").write_text("")


def timed(code: str, *arguments: str) -> tuple[float, str]:
    """Run code in a fresh interpreter; its wall time, start of the interpreter included, and its output."""
    begun = time.perf_counter()
    ran = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    if ran.returncode:
        sys.exit(ran.stderr)
    return time.perf_counter() - begun, ran.stdout


def main() -> None:
    """Make the run, analyse it, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queries", type=int, default=5_000_000)
    parser.add_argument("--rate", type=float, default=50_000, help="queries a second")
    parser.add_argument("--faults", type=int, default=500_000)
    parser.add_argument("--keep", type=Path, help="make the run directory here, and leave it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        directory = options.keep or Path(scratch) / "run"
        directory.mkdir(parents=True)
        make_run(directory, options.queries, options.rate, options.faults)
        for what in ("summary", "all"):
            wall, output = timed(_ANALYSE, str(directory), what)
            first, *words = output.splitlines()
            _, peak, valid, p99 = first.split()
            print(
                f"{what:8}  wall {wall:5.2f} s  peak {int(peak) / 2**20:5.2f} GiB  valid {valid}  snapshot p99 {p99} us"
            )
        for peer, code in _PEERS.items():
            if importlib.util.find_spec(peer):
                wall, output = timed(code, str(directory / "queries.parquet"))
                print(f"{peer:8}  wall {wall:5.2f} s  (p99 alone, from Parquet)  snapshot p99 {output.strip()} us")
        print(*words, sep="\n")


if __name__ == "__main__":
    main()

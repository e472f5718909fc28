# SPDX-License-Identifier: Apache-2.0
"""One run, from an empty server to a whole run directory."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import forktail
from forktail import rundir
from forktail.errors import EnvironmentLacks, RunFailed
from forktail.measure import load as load_part
from forktail.measure.clock import wall_ahead
from forktail.measure.environment import deviations, environment
from forktail.measure.generator import Generator, start_load
from forktail.measure.info import InfoLog
from forktail.measure.mechanism import Mechanism, fork_mechanism
from forktail.measure.placement import contention
from forktail.measure.preflight import preflight
from forktail.measure.probe import REQUIRED, Probe
from forktail.measure.progress import Progress
from forktail.measure.remote_load import ask_about
from forktail.measure.server import Server
from forktail.workload import Workload, without_effect, workload_toml

_ARM_AHEAD_NS = 50_000_000
"""What attaching costs is over by then. An armed probe slows the server, so it is not armed sooner."""
_TICK_S = 0.005
_FORK_SEEN_WITHIN_S = 10.0
_REAPED_WITHIN_S = 5.0


@dataclass
class SnapshotMarks:
    """When one snapshot was asked for and seen from user space; the probe's own times are in the event log."""

    trigger: str
    requested_ns: int
    replied_ns: int
    in_progress_seen_ns: int | None = None
    last_in_progress_ns: int | None = None
    """When the last INFO after the window's end was asked that still showed the snapshot in progress."""
    finished_seen_ns: int | None = None
    """When the first INFO had come that no longer did."""
    wall_ahead_ns: int | None = None
    """What CLOCK_REALTIME was ahead of CLOCK_MONOTONIC at the request; `wall_ahead_after_ns` at the end."""
    wall_ahead_after_ns: int | None = None


class _Timeline:
    """The measured part of a run: warm-up, each snapshot in its turn, cool-down."""

    def __init__(
        self,
        workload: Workload,
        server: Server,
        mechanism: Mechanism,
        load: Generator,
        probe: Probe,
        info: InfoLog,
        progress: Progress,
    ) -> None:
        self._snapshot = workload.snapshot
        self._run = workload.run
        self._server = server
        self._mechanism = mechanism
        self._load = load
        self._probe = probe
        self._info = info
        self._progress = progress
        self.warmup_end_ns = load.start_ns + workload.run.warm_up
        self.limit_ns = self.warmup_end_ns + workload.run.limit
        self.marks: list[SnapshotMarks] = []
        self.truncated = False
        self._own_window_end_ns = 0
        self.killed = False
        """Whether the last snapshot's child was killed: the run is then kept, and not valid."""

    def follow(self) -> None:
        """Go through the whole timeline; returns when the load may stop."""
        planned_s = (self._run.warm_up + self._run.duration) / 1e9
        self._progress.begin("load", planned_s)
        for number in range(self._snapshot.count):
            due_ns = self.warmup_end_ns + self._snapshot.at + number * self._snapshot.every
            self._until_time(due_ns - _ARM_AHEAD_NS)
            self._probe.arm()
            self._until_time(due_ns)
            self._take_snapshot()
            if self.truncated or self.killed:
                break
        last_ns = self._own_window_end_ns
        end_ns = max(self.warmup_end_ns + self._run.duration, last_ns + self._run.cool_down)
        self._until_time(end_ns)
        self._progress.end("load")

    def _take_snapshot(self) -> None:
        self._mechanism.verify()
        requested_ns = time.monotonic_ns()
        self._server.bgsave()
        mark = SnapshotMarks(self._snapshot.trigger, requested_ns, time.monotonic_ns())
        mark.wall_ahead_ns = wall_ahead()
        self.marks.append(mark)
        sample = self._info.sample()
        if sample["rdb_bgsave_in_progress"]:
            mark.in_progress_seen_ns = sample["t_ns"]
        self._progress.begin("persist", sample.get("current_save_keys_total", 0))
        fork_deadline_ns = mark.replied_ns + round(_FORK_SEEN_WITHIN_S * 1e9)

        def closed(now_ns: int) -> bool:
            # The server may have forked for someone else too.
            fork = self._probe.fork_since(requested_ns)
            if fork is None:
                if now_ns > fork_deadline_ns:
                    raise RunFailed(
                        f"The probe saw no fork within {_FORK_SEEN_WITHIN_S:g} s of BGSAVE: "
                        "`forktail doctor` tells which probe was used and why."
                    )
                return False
            self.truncated = now_ns >= self.limit_ns
            self._own_window_end_ns = fork.window_end_ns
            return fork.window_end_ns > 0 or self.truncated

        self._until(closed)
        self._progress.end("persist")
        if not self.truncated:
            self._see_it_finished(mark)

    def _see_it_finished(self, mark: SnapshotMarks) -> None:
        # The server learns of its child's end in its next serverCron, up to 100 ms later at hz 10.
        deadline = time.monotonic() + _REAPED_WITHIN_S
        while True:
            asked_ns = time.monotonic_ns()
            info = self._server.info("persistence")
            if not info["rdb_bgsave_in_progress"]:
                break
            mark.last_in_progress_ns = asked_ns
            if time.monotonic() > deadline:
                raise RunFailed("The snapshot's child is gone, but the server still waits for it: see its log.")
            time.sleep(0.01)
        mark.finished_seen_ns = time.monotonic_ns()
        mark.wall_ahead_after_ns = wall_ahead()
        if info["rdb_last_bgsave_status"] != "ok":
            # As a kernel does that cannot give the child its page tables: what the probe saw of it tells why.
            self.killed = self._server.child_was_killed()
            if self.killed:
                return
            raise self._server.snapshot_failure("The snapshot failed")

    def _until_time(self, t_ns: int) -> None:
        self._until(lambda now_ns: now_ns >= t_ns)

    def _until(self, condition: Callable[[int], bool]) -> None:
        while True:
            now_ns = time.monotonic_ns()
            if condition(now_ns):
                return
            self._look_after(now_ns)
            time.sleep(_TICK_S)

    def _look_after(self, now_ns: int) -> None:
        """Keep the conversations going, and notice at once when one of the three processes is gone."""
        gone = self._server.gone()
        if gone is not None:
            raise gone
        for program in (self._load.program, self._probe.native):
            ended = program.process.poll() is not None
            program.pump()
            if ended:
                time.sleep(0.1)  # The server's death ends the others; it is the one to be named.
                raise self._server.gone() or program.failure("ended in the middle of the run")
        if self._info.due(now_ns):
            sample = self._info.sample()
            if sample["rdb_bgsave_in_progress"]:
                self._progress.advance("persist", sample.get("current_save_keys_processed", 0))
            self._progress.advance("load", (now_ns - self._load.start_ns) / 1e9)


def _require(probe: Probe) -> None:
    chosen = probe.header["probes"]
    missing = [name for name in REQUIRED if not chosen.get(name, {}).get("probe")]
    if missing:
        raise EnvironmentLacks(
            f"No probe on this kernel can tell {' and '.join(missing)}: `forktail doctor` tells why each was refused."
        )


def _kept_info(info: dict[str, Any]) -> dict[str, Any]:
    prefixes = ("rdb_", "latest_fork", "mem_allocator", "used_memory", "total_forks", "hz",
                "redis_version", "keydb_version", "valkey_version", "server_name", "server_threads")  # fmt: skip
    return {name: value for name, value in info.items() if name.startswith(prefixes)}


def _fewer_threads(workload: Workload, threads: int) -> list[str]:
    wanted = workload.server.chosen_threads
    if threads == wanted:
        return []
    sentence = (
        f"KeyDB serves with {threads} threads and not with the {wanted} of server.threads: it takes no more than the "
        "host has CPUs."
    )
    return [sentence]


def measure(workload: Workload, final: Path, progress: Progress) -> Path:
    """Run the workload on this host; `final` becomes a whole run directory, and is returned.

    Whatever happens, no process is left behind; a run that fails leaves `final` with the suffix `.partial`.
    Raises BadInput or EnvironmentLacks before anything is started, RunFailed after.
    """
    preflight(workload, final)
    partial = rundir.begin(final)
    try:
        manifest = _measure_into(workload, partial, progress)
        rundir.finish(partial, final, manifest)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise EnvironmentLacks(
            f"The disk is full at {partial}: free space, or choose another --out; what was written is kept there."
        ) from error
    return final


def _measure_into(workload: Workload, partial: Path, progress: Progress) -> dict[str, Any]:
    started_at = datetime.now(UTC)
    recorded = environment(partial)
    rundir.write_json(partial / rundir.ENVIRONMENT, recorded)
    (partial / rundir.WORKLOAD).write_text(workload_toml(workload), encoding="utf-8")
    with ExitStack() as stack:
        # Entered before the server and so left after it: its cgroup goes when nobody is in it.
        mechanism = stack.enter_context(fork_mechanism(recorded["kernel"]["flavour"], workload.snapshot))
        address = ask_about(workload.load.host)["seen_from"] if workload.load.host else ""
        server = Server(workload, (partial / rundir.SERVER).resolve(), mechanism.cgroup, address)
        stack.callback(server.end)
        server.wait_until_ready()
        mechanism.adopt(server.pid)

        progress.begin("fill", workload.server.keys)
        filled = load_part.fill(workload, server.port, lambda keys: progress.advance("fill", keys))
        progress.end("fill")
        serving = server.serving_threads()
        in_keydb = workload.server.engine == "keydb" and serving
        threads = len(serving) if in_keydb else workload.server.chosen_threads
        before = server.memory()
        rundir.write_json(server.directory / rundir.INFO_BEFORE, server.info())

        probe = Probe(server.pid, partial / rundir.EVENT_LOG)
        stack.callback(probe.native.end)
        _require(probe)
        info = InfoLog(server, partial / rundir.INFO)
        stack.callback(info.close)
        load = start_load(workload, server, partial.resolve(), filled["keys_per_s"])
        stack.callback(load.program.end)
        load.wait_until_started()

        timeline = _Timeline(workload, server, mechanism, load, probe, info, progress)
        timeline.follow()
        load_summary = load.stop()
        load_end_ns = time.monotonic_ns()
        info.sample()
        probe_summary = probe.stop()
        after = server.memory()
        mechanism_used = mechanism.as_json()
        last = server.info()
        rundir.write_json(server.directory / rundir.INFO_AFTER, last)

        rundir.write_json(partial / rundir.LOAD, load_summary)
        rundir.write_json(partial / rundir.PROBE, probe_summary)
    return {
        "schema": rundir.RUN_SCHEMA,
        "name": workload.name,
        "forktail": forktail.__version__,
        "started_at": started_at.isoformat(timespec="seconds"),
        "boot_id": recorded["kernel"]["boot_id"],
        "clock": "CLOCK_MONOTONIC",
        "kernel": {key: recorded["kernel"][key] for key in ("flavour", "release")},
        "marks": {
            "load_start_ns": load.start_ns,
            "warmup_end_ns": timeline.warmup_end_ns,
            "load_end_ns": load_end_ns,
            "snapshots": [asdict(mark) for mark in timeline.marks],
            "armed": [asdict(stretch) for stretch in probe.armed],
        },
        "forks_seen": [asdict(fork) for fork in probe.forks],
        "truncated": timeline.truncated,
        "without_effect": [f"{key}: {why}" for key, why in without_effect(workload).items()],
        "mechanism": mechanism_used,
        "server": {
            "engine": workload.server.engine,
            "version": server.program.version,
            "threads": threads,
            "serving_tids": serving if serving and len(probe.header["namespace_pids"]) == 1 else None,
            "path": str(server.path),
            "pid": server.pid,
            "port": server.port,
            "keys": workload.server.keys,
            "value_bytes": workload.server.value_size,
            "payload_bytes": workload.server.keys * workload.server.value_size,
            "fill": filled,
            "before": before,
            "after": after,
        },
        "load": {
            "generator": workload.load.generator,
            "closed_loop": workload.load.closed_loop,
            "host": workload.load.host or None,
        },
        "info": _kept_info(last),
        "warnings": [
            *deviations(recorded, load_is_here=not workload.load.host),
            *contention(workload),
            *_fewer_threads(workload, threads),
        ],
    }

# SPDX-License-Identifier: Apache-2.0
"""However it ends, it ends cleanly: with a trailer, a whole log and nothing left attached."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.probe.conftest import PATIENCE_S, Probe, StartProbe, StartSnapshotter, assert_conserved

MEASUREMENTS = {"fork", "page_table_copy", "interruption", "fault", "run_queue", "window_end", "rename", "flight"}


def _check_header(header: dict[str, Any], pid: int) -> None:
    assert header["schema"] == "forktail.events/1"
    assert header["kernel"] == os.uname().release
    assert header["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert header["clock"] == "CLOCK_MONOTONIC"
    assert header["pid"] == header["namespace_pids"][0] == pid
    assert set(header["probes"]) == MEASUREMENTS
    for chosen in header["probes"].values():
        assert chosen["probe"] is None or chosen["label"]
        for rejected in chosen["rejected"]:
            assert set(rejected) == {"probe", "errno", "why"}
            if rejected["why"] == "fork does not fire it":
                continue
            assert rejected["errno"] > 0
            assert os.strerror(rejected["errno"]) in rejected["why"]


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.usefixtures("bpf_works")
def test_a_dry_run_names_each_probe(given: bool, either_probe: Path) -> None:
    options = ["--pid", str(os.getpid())] if given else []
    dry = subprocess.Popen([either_probe, "--dry-run", *options], stdout=subprocess.PIPE)
    output, _ = dry.communicate(timeout=PATIENCE_S)
    assert dry.returncode == 0
    header = json.loads(output)
    _check_header(header, os.getpid() if given else dry.pid)
    # Each probe of the chain before the chosen one was tried.
    tried = [rejected["probe"] for rejected in header["probes"]["fork"]["rejected"]]
    chain = ["fexit:kernel_clone", "kprobe:kernel_clone", "kprobe:_do_fork", "tp_btf:percpu_alloc_percpu"]
    chain.append("raw_tp:sys_enter")
    assert [*tried, header["probes"]["fork"]["probe"]] == chain[: len(tried) + 1]


def test_the_header_of_a_run(probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    server = snapshotter(1)
    before = time.monotonic_ns()
    follower = probe(server.pid)
    _check_header(follower.header, server.pid)
    assert before < follower.header["attach_ns"] < time.monotonic_ns()
    trailer = follower.stop()
    log = follower.log()
    assert log.header["magic"] == b"FTELOG"
    assert (log.header["version"], log.header["header_bytes"], log.header["record_bytes"]) == (2, 64, 48)
    assert log.header["tgid"] == server.pid
    assert log.header["attach_ns"] == follower.header["attach_ns"]
    assert not log.header["zero"].any()
    assert trailer["reason"] == "stop"


def test_the_log_appears_when_it_is_whole(probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    follower = probe(snapshotter(1).pid)
    partial = follower.events.with_name(follower.events.name + ".tmp")
    assert partial.exists()
    assert not follower.events.exists()
    follower.stop()
    assert follower.events.exists()
    assert not partial.exists()


@pytest.mark.parametrize("armed", [False, True])
def test_the_server_is_killed(armed: bool, any_probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    server = snapshotter(16)
    probe = any_probe(server.pid)
    if armed:
        probe.arm()
        server.ask("fork 0")
        probe.expect("fork")
        server.ask("touch 1000")
    server.process.kill()
    trailer = probe.end()
    assert trailer["reason"] == "server ended"
    assert_conserved(trailer, probe.log())


def _close_input(probe: Probe) -> None:
    assert probe.process.stdin is not None
    probe.process.stdin.close()


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        (_close_input, "end of input"),
        (lambda probe: probe.process.send_signal(signal.SIGTERM), "signal"),
        (lambda probe: probe.process.send_signal(signal.SIGINT), "signal"),
    ],
)
@pytest.mark.parametrize("armed", [False, True])
def test_other_ends(end: Any, reason: str, armed: bool, any_probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    server = snapshotter(1)
    probe = any_probe(server.pid)
    if armed:
        probe.arm()
    end(probe)
    trailer = probe.end()
    assert trailer["reason"] == reason
    assert_conserved(trailer, probe.log())
    assert server.ask("touch 1").value == server.memory


@pytest.mark.usefixtures("bpf_works")
def test_it_dies_with_its_parent(plain_probe: Path, tmp_path: Path, snapshotter: StartSnapshotter) -> None:
    """Its input stays open in this process: only the parent's death can tell it."""
    server = snapshotter(1)
    reading, writing = os.pipe()
    script = f"exec 3<&0; '{plain_probe}' --pid {server.pid} --events '{tmp_path}/events.bin' <&3 & wait"
    parent = subprocess.Popen(["sh", "-c", script], stdin=reading, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert json.loads(parent.stdout.readline())["event"] == "ready"
    parent.kill()
    assert json.loads(parent.stdout.readline())["trailer"]["reason"] == "signal"
    os.close(reading)
    os.close(writing)
    parent.communicate()


def test_an_unknown_command_is_named_and_ignored(probe: StartProbe, snapshotter: StartSnapshotter) -> None:
    follower = probe(snapshotter(1).pid)
    assert follower.process.stdin is not None
    follower.process.stdin.write(b"fire\n" + b"x" * 1000 + b"\n")
    follower.stop()
    assert follower.errors().count("was ignored") == 2

# SPDX-License-Identifier: Apache-2.0
"""A real server that forks without a request of the run: the run is not valid, and says when that was."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from tests.run.conftest import FORKTAIL, Command, Start

from forktail.analysis.eventlog import Kind, read_event_log

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="eBPF probes need root")

WITHOUT = "without a request of this run"


def _client(command: Command) -> redis.Redis:
    (configuration,) = command.directory.rglob("*.partial/server/redis.conf")
    port = re.search(r"^port (\d+)", configuration.read_text(), re.MULTILINE)
    assert port
    return redis.Redis(port=int(port[1]), decode_responses=True)


def _in_the_warm_up(client: redis.Redis) -> None:
    client.bgsave()


def _after_the_window(client: redis.Redis) -> None:
    """One second after the run's own window, when its queries would be normal ones."""
    _wait_for_the_window(client)
    time.sleep(1)
    client.bgsave()


def _rewrite_after_the_window(client: redis.Redis) -> None:
    _wait_for_the_window(client)
    client.bgrewriteaof()


def _wait_for_the_window(client: redis.Redis) -> None:
    deadline = time.monotonic() + 20
    while client.info("stats")["total_forks"] < 1 or client.info("persistence")["rdb_bgsave_in_progress"]:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("avoid", ["", "fexit,kprobe,percpu_alloc_percpu"], ids=["measured", "births-only"])
@pytest.mark.parametrize("fork", [_in_the_warm_up, _after_the_window, _rewrite_after_the_window])
def test_a_fork_without_a_request_makes_the_run_invalid(
    fork: Callable[[redis.Redis], None], avoid: str, start: Start, tiny: Path, tmp_path: Path
) -> None:
    command = _start(start, tiny, tmp_path, avoid)
    command.wait_for_load()
    client = _client(command)
    asked_ns = time.monotonic_ns()
    fork(client)
    client.close()
    code, output, errors = command.finish(120)
    assert code == 1, errors
    summary = json.loads(output)
    (reason,) = [reason for reason in summary["reasons"] if WITHOUT in reason]
    assert "forked once" in reason
    assert len(summary["snapshots"]) == 2
    # Both views agree that there were two, so that nothing else is said of forks.
    assert not any("total_forks" in other or "was not seen" in other for other in summary["reasons"])
    log = read_event_log(tmp_path / "out" / "events.bin")
    measured, births = log.of(Kind.FORK), log.of(Kind.FORK_UNMEASURED)
    assert (len(measured), len(births)) == ((2, 0) if not avoid else (1, 1))
    (other,) = [one for one in summary["snapshots"] if str(one["fork"]["child"]) in reason]
    assert other["window"]["end_ns"] > asked_ns


def _start(start: Start, tiny: Path, directory: Path, avoid: str) -> Command:
    more = ["--set", "run.duration=6s", "--set", "run.warm_up=2s"]
    if not avoid:
        return start("run", tiny, "--out", directory / "out", "--json", *more)
    # The command finds its probe beside its Python: here one that may not use the better ways to see a fork.
    beside = directory / "bin"
    beside.mkdir()
    probe = beside / "forktail-probe"
    real = FORKTAIL.with_name("forktail-probe")
    probe.write_text(f'#!/bin/sh\nexec "{real}" --avoid {avoid} "$@"\n')
    probe.chmod(0o755)
    code = (
        f"import sys; sys.argv.pop(0); sys.executable = {str(beside / 'python')!r}; "
        "from forktail.cli import main; main()"
    )
    before = (sys.executable, "-c", code)
    path = f"{FORKTAIL.parent}:{os.environ['PATH']}"
    return start("run", tiny, "--out", directory / "out", "--json", *more, before=before, PATH=path)

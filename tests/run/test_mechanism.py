# SPDX-License-Identifier: Apache-2.0
"""Async-fork as the harness asks for it. The knob is of our kernel; where it is not at hand, a knob of the memory
controller that this kernel has stands in for it: as the real one, it holds a number and starts with its parent's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from forktail import rundir
from forktail.errors import EnvironmentLacks, RunFailed
from forktail.measure import environment, mechanism, preflight
from forktail.measure.cgroup import PREFIX, memory_hierarchy
from forktail.measure.mechanism import AsyncFork, Mechanism, check_mechanism, fork_mechanism
from forktail.measure.progress import Silence
from forktail.measure.run import measure
from forktail.measure.server import Server
from forktail.workload import Snapshot, Workload, read_workload

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="cgroups are made by root")


def _cgroups() -> set[Path]:
    return set(memory_hierarchy().mount.glob(f"{PREFIX}*"))


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> str:
    name = "memory.swappiness" if memory_hierarchy().version == 1 else "memory.oom.group"
    monkeypatch.setattr(mechanism, "KNOB", name)
    return name


def test_a_kernel_without_the_knob_is_told_to_be_built_anew() -> None:
    if (memory_hierarchy().mount / mechanism.KNOB).exists():
        pytest.skip("this kernel has async-fork")
    before = _cgroups()
    with pytest.raises(EnvironmentLacks, match=r"memory\.async_fork .*it is not there.*kernel build async-fork"):
        fork_mechanism("async-fork", Snapshot()).__enter__()
    assert _cgroups() == before
    with pytest.raises(EnvironmentLacks, match=r"memory\.async_fork is not there: .*kernel build async-fork"):
        check_mechanism("async-fork")
    check_mechanism("default")


def test_a_value_that_the_kernel_refuses_is_told(stand_in: str) -> None:
    refused = Snapshot.model_construct(fork="kernel", copy_threads=1000)
    with pytest.raises(EnvironmentLacks, match="writing 1000 to it: Invalid argument"):
        fork_mechanism("async-fork", refused).__enter__()


@pytest.fixture
def server(tmp_path: Path) -> Any:
    """Starts a server in a mechanism's cgroup, and ends it."""
    started: list[Server] = []

    def start(of: Mechanism) -> Server:
        started.append(Server(Workload(), tmp_path / "server", of.cgroup))
        return started[-1]

    yield start
    for each in started:
        each.end()


def test_the_server_is_in_its_cgroup_before_it_runs(stand_in: str, server: Any) -> None:
    with fork_mechanism("async-fork", Snapshot()) as async_fork:
        assert isinstance(async_fork, AsyncFork)
        assert async_fork.cgroup is not None
        started = server(async_fork)
        assert async_fork.cgroup.pids() == [started.pid]
        async_fork.adopt(started.pid)
        path = async_fork.cgroup.path
        assert async_fork.as_json() == {
            "name": "async-fork",
            "knob": str(path / stand_in),
            "wanted": "1",
            "read_back": "1",
            "cgroup": str(path),
            "copy_threads": 1,
            "note": None,
        }
        started.end()
    assert not path.exists()


def test_a_knob_that_falls_back_fails_the_run(stand_in: str, server: Any) -> None:
    with fork_mechanism("async-fork", Snapshot()) as async_fork:
        async_fork.adopt(server(async_fork).pid)
        assert async_fork.knob is not None
        async_fork.knob.write_text("0")
        with pytest.raises(RunFailed, match="holds '0' and not '1': the snapshot would use another fork"):
            async_fork.verify()


def test_a_server_that_is_moved_elsewhere_fails_the_run(stand_in: str, server: Any) -> None:
    with fork_mechanism("async-fork", Snapshot()) as async_fork:
        started = server(async_fork)
        async_fork.adopt(started.pid)
        (memory_hierarchy().mount / "cgroup.procs").write_text(str(started.pid))
        with pytest.raises(RunFailed, match=r"is not in its cgroup .* any more"):
            async_fork.verify()


def test_the_default_fork_is_asked_for_on_an_async_fork_kernel_too(stand_in: str) -> None:
    """A new cgroup has its parent's value, which may be on."""
    with fork_mechanism("async-fork", Snapshot(fork="default", copy_threads=4)) as default:
        told = default.as_json()
        assert (told["name"], told["wanted"], told["read_back"], told["copy_threads"]) == ("default", "0", "0", None)
        assert "copy_threads = 4 has no effect: snapshot.fork leaves async-fork off." in str(told["note"])


@pytest.mark.parametrize("flavour", ["default", "odf"])
def test_other_kernels_get_no_cgroup_and_say_that_threads_have_no_effect(flavour: str) -> None:
    before = _cgroups()
    with fork_mechanism(flavour, Snapshot(copy_threads=4)) as other:
        assert other.cgroup is None
        assert other.name == flavour
        assert other.note == "snapshot.copy_threads = 4 has no effect: this kernel has no async-fork."
        assert _cgroups() == before
    with fork_mechanism(flavour, Snapshot()) as other:
        assert other.note is None


def test_a_whole_run_in_a_cgroup(stand_in: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "flavour_of", lambda release, signs: "async-fork")
    monkeypatch.setattr(preflight, "flavour_here", lambda: "async-fork")
    before = _cgroups()
    run = measure(read_workload(tiny), tmp_path / "out", Silence())
    told = json.loads((run / rundir.MANIFEST).read_text())["mechanism"]
    assert (told["name"], told["wanted"], told["read_back"], told["copy_threads"]) == ("async-fork", "1", "1", 1)
    assert told["cgroup"].startswith(str(memory_hierarchy().mount / PREFIX))
    assert _cgroups() == before

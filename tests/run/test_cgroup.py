# SPDX-License-Identifier: Apache-2.0
"""The server's memory cgroup, of this host's kernel: made, entered, and gone however its maker ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from forktail.errors import EnvironmentLacks
from forktail.measure.cgroup import PREFIX, Hierarchy, MemoryCgroup, memory_cgroup, memory_hierarchy

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="cgroups are made by root")

V1 = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory"
OTHER_V1 = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu"
DISK = "22 1 8:1 / / rw,relatime - ext4 /dev/memory rw,memory"


def _v2(mount: Path, controllers: str) -> str:
    mount.mkdir()
    (mount / "cgroup.controllers").write_text(controllers)
    escaped = str(mount).replace(" ", r"\040")
    return f"41 31 0:38 / {escaped} rw,relatime - cgroup2 cgroup2 rw,nsdelegate"


def test_the_hierarchy_with_the_memory_controller_is_taken(tmp_path: Path) -> None:
    with_memory = _v2(tmp_path / "with memory", "cpuset cpu memory\n")
    without = _v2(tmp_path / "without", "hugetlb\n")
    assert memory_hierarchy("\n".join([DISK, OTHER_V1, with_memory])) == Hierarchy(tmp_path / "with memory", 2)
    # Both versions are mounted, and version 2 comes first: the controller is in version 1 all the same.
    assert memory_hierarchy("\n".join([without, OTHER_V1, V1])) == Hierarchy(Path("/sys/fs/cgroup/memory"), 1)
    with pytest.raises(EnvironmentLacks, match="mount -t cgroup2"):
        memory_hierarchy("\n".join([DISK, OTHER_V1, without]))


def _sleeper(cgroup: MemoryCgroup) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sh", "-c", f'echo 0 >{cgroup.procs}; exec "$@"', "sh", "sleep", "60"])


def _await(condition: object, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "the moment that the test waits for did not come"
        time.sleep(0.01)


@NEEDS_ROOT
def test_a_process_left_in_it_is_ended_and_the_cgroup_is_gone() -> None:
    hierarchy = memory_hierarchy()
    with memory_cgroup(hierarchy) as cgroup:
        assert cgroup.path.parent == hierarchy.mount
        assert list(cgroup.path.glob("memory.*"))
        left = _sleeper(cgroup)
        _await(lambda: cgroup.pids() == [left.pid])
    assert not cgroup.path.exists()
    assert left.wait(5) == -signal.SIGKILL


@NEEDS_ROOT
def test_it_is_gone_when_its_maker_fails() -> None:
    with pytest.raises(KeyboardInterrupt), memory_cgroup(memory_hierarchy()) as cgroup:
        raise KeyboardInterrupt
    assert not cgroup.path.exists()


@NEEDS_ROOT
def test_it_is_gone_when_its_maker_is_killed() -> None:
    program = (
        "import subprocess, time\n"
        "from forktail.measure.cgroup import memory_cgroup, memory_hierarchy\n"
        "with memory_cgroup(memory_hierarchy()) as cgroup:\n"
        "    left = subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL)\n"
        "    cgroup.procs.write_text(str(left.pid))\n"
        "    print(cgroup.path, flush=True)\n"
        "    time.sleep(60)\n"
    )
    maker = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert maker.stdout is not None
    path = Path(maker.stdout.readline().strip())
    assert path.name.startswith(PREFIX)
    assert MemoryCgroup(path, 1).pids()
    maker.kill()
    maker.communicate()
    _await(lambda: not path.exists())


@NEEDS_ROOT
def test_a_hierarchy_that_cannot_have_one_is_told_with_the_mend() -> None:
    with pytest.raises(EnvironmentLacks, match=r"No memory cgroup can be made below /proc .*run as root"):
        memory_cgroup(Hierarchy(Path("/proc"), 1)).__enter__()


@NEEDS_ROOT
def test_a_hierarchy_of_version_2_that_hands_no_memory_controller_down_is_told(tmp_path: Path) -> None:
    """The kernel itself refuses, as the controller is elsewhere: mounted by version 1."""
    if memory_hierarchy().version == 2:
        pytest.skip("the memory controller of this host is in version 2, which hands it down")
    subprocess.run(["mount", "-t", "cgroup2", "none", tmp_path], check=True)
    try:
        with pytest.raises(EnvironmentLacks, match=r"subtree_control refuses \+memory .*run on the host itself"):
            memory_cgroup(Hierarchy(tmp_path, 2)).__enter__()
        assert not list(tmp_path.glob(f"{PREFIX}*"))
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@NEEDS_ROOT
def test_the_memory_controller_is_handed_down_once(tmp_path: Path) -> None:
    """Plain files in place of the kernel's: what is written where, on a host whose controller is in version 1."""
    control = tmp_path / "cgroup.subtree_control"
    control.write_text("cpu\n")
    with memory_cgroup(Hierarchy(tmp_path, 2)):
        assert control.read_text() == "+memory"
    control.write_text("cpu memory\n")
    with memory_cgroup(Hierarchy(tmp_path, 2)):
        assert control.read_text() == "cpu memory\n"

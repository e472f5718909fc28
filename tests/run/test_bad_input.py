# SPDX-License-Identifier: Apache-2.0
"""Whatever goes wrong: one clear sentence, the documented exit code, no orphan, nothing taken for a whole run."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.run.conftest import Command, Start

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="eBPF probes and mounts need root")


def _check(command: Command, code: int, *words: str) -> str:
    """The command ended with `code` and its words, without a traceback or a process left."""
    returned, _, errors = command.finish()
    assert returned == code, errors
    assert "Traceback" not in errors
    for word in words:
        assert word in errors, errors
    assert command.orphans() == {}
    return errors


def _no_whole_run(directory: Path) -> None:
    assert not list(directory.rglob("run.json"))


def test_unknown_key(start: Start, tiny: Path, tmp_path: Path) -> None:
    _check(start("run", tiny, "--set", "server.sise=1GiB"), 2, "server.sise", "did you mean 'size'?")
    assert not (tmp_path / "results").exists()


def test_wrong_unit(start: Start, tiny: Path) -> None:
    _check(start("run", tiny, "--set", "server.size=1s"), 2, "server.size: '1s' is no size")


def test_size_beyond_memory(start: Start, tiny: Path) -> None:
    _check(start("run", tiny, "--set", "server.size=2TiB"), 3, "server.size 2TiB needs", "lower server.size")


def test_no_redis_server(start: Start, tiny: Path) -> None:
    _check(start("run", tiny, PATH="/nonexistent"), 3, "redis-server is not on PATH", "apt-get install")


def test_server_path_that_is_no_redis(start: Start, tiny: Path) -> None:
    _check(
        start("run", tiny, "--set", "server.path=/bin/true"),
        2,
        "/bin/true does not call itself a Redis server",
    )


def test_server_of_another_version(start: Start, tiny: Path) -> None:
    _check(start("run", tiny, "--set", "server.version='1.2.3'"), 2, "server.version is 1.2.3")


def test_server_that_refuses_its_configuration(start: Start, tiny: Path) -> None:
    command = start("run", tiny, "--set", "server.config.no-such-directive='1'")
    _check(command, 2, "did not start", "Bad directive")


@NEEDS_ROOT
def test_no_root(start: Start, tiny: Path) -> None:
    """A user namespace without a mapping takes root's name and leaves it root's files, the programs among them."""
    _check(start("run", tiny, before=["unshare", "--user"]), 3, "needs root")


@NEEDS_ROOT
def test_no_btf(start: Start, tiny: Path) -> None:
    hidden = 'mount -t tmpfs none /sys/kernel/btf && exec "$0" "$@"'
    command = start("run", tiny, before=["unshare", "--mount", "sh", "-c", hidden])
    _check(command, 3, "/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF=y")


def test_port_in_use(start: Start, tiny: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        _check(start("run", tiny, "--set", f"server.port={port}"), 2, f"server.port {port} is in use")


def test_cpu_that_is_not_there(start: Start, tiny: Path) -> None:
    _check(start("run", tiny, "--set", "server.cpus=4096"), 2, "name CPU 4096")


def test_every_fault_of_the_host_is_told_at_once(start: Start, tiny: Path) -> None:
    command = start("run", tiny, "--set", "server.size=2TiB", "--set", "server.cpus=4096", PATH="/nonexistent")
    _check(command, 3, "reasons:", "server.size 2TiB", "CPU 4096", "redis-server is not on PATH")


def test_out_that_exists(start: Start, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    _check(start("run", tiny, "--out", tmp_path / "taken"), 2, "exists already")


@NEEDS_ROOT
class TestMidRun:
    """Faults after everything is at work."""

    @pytest.mark.parametrize("program", ["redis-server", "forktail-load", "forktail-probe"])
    def test_a_process_that_is_killed(self, start: Start, tiny: Path, tmp_path: Path, program: str) -> None:
        command = start("run", tiny, "--out", tmp_path / "out")
        command.wait_for_load()
        os.kill(command.pid_of(program), signal.SIGKILL)
        named = "The server (pid" if program == "redis-server" else program
        _check(command, 1, named)
        _no_whole_run(tmp_path)

    def test_bgsave_refused(self, start: Start, tiny: Path, tmp_path: Path) -> None:
        command = start("run", tiny, "--set", "server.config.rename-command='BGSAVE \"\"'")
        _check(command, 1, "refused BGSAVE", "unknown command")
        _no_whole_run(tmp_path)

    def test_fork_refused(self, start: Start, tiny: Path, tmp_path: Path) -> None:
        """A user at the limit of processes cannot fork: Redis 7 has five threads, and root is exempt."""
        wrapper = tmp_path / "redis-at-its-limit"
        wrapper.write_text(
            '#!/bin/sh\nexec prlimit --nproc=5:5 setpriv --reuid=54321 --clear-groups redis-server "$@"\n'
        )
        wrapper.chmod(0o755)
        for directory in (tmp_path, *tmp_path.parents[:2]):
            directory.chmod(0o755)
        opened = ["sh", "-c", 'umask 0; exec "$0" "$@"']
        command = start("run", tiny, "--set", f"server.path={wrapper}", before=opened)
        _check(command, 3, "refused BGSAVE", "Resource temporarily unavailable")
        _no_whole_run(tmp_path)

    def test_ctrl_c(self, start: Start, tiny: Path, tmp_path: Path) -> None:
        command = start("run", tiny)
        command.wait_for_load()
        command.process.send_signal(signal.SIGINT)
        _check(command, 130, "interrupted")
        _no_whole_run(tmp_path)

    def test_terminated(self, start: Start, tiny: Path, tmp_path: Path) -> None:
        command = start("run", tiny)
        command.pid_of("forktail-probe")
        command.process.send_signal(signal.SIGTERM)
        _check(command, 130, "interrupted")
        _no_whole_run(tmp_path)

    def test_harness_that_is_killed_leaves_no_orphan(self, start: Start, tiny: Path, tmp_path: Path) -> None:
        command = start("run", tiny)
        command.wait_for_load()
        command.process.kill()
        command.process.wait()
        assert command.orphans() == {}
        _no_whole_run(tmp_path)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own with 256 MiB."""
    directory = tmp_path / "disk"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "none", directory], check=True)
    yield directory
    subprocess.run(["umount", "--lazy", directory], check=True)


@NEEDS_ROOT
class TestFullDisk:
    def test_too_little_to_begin_with(self, start: Start, tiny: Path, small_disk: Path) -> None:
        command = start("run", tiny, "--set", "server.size=512MiB", "--out", small_disk / "out")
        _check(command, 3, f"GiB at {small_disk}", "choose another --out")

    def test_filled_up_before_bgsave(self, start: Start, tiny: Path, small_disk: Path) -> None:
        command = start("run", tiny, "--out", small_disk / "out", "--set", "run.limit=10s")
        command.wait_for_load()
        free = shutil.disk_usage(small_disk).free
        (small_disk / "other").write_bytes(bytes(free - 8 * 2**20))
        _check(command, 3, "The snapshot failed", "No space left on device", "Free space at")
        _no_whole_run(small_disk)

    def test_filled_up_before_the_logs_are_written(self, start: Start, tiny: Path, small_disk: Path) -> None:
        command = start("run", tiny, "--out", small_disk / "out", "--set", "run.limit=10s")
        command.wait_for_load()
        log = small_disk / "out.partial" / "server" / "server.log"
        command.wait_for(lambda: "Background saving terminated with success" in log.read_text())
        # The run gives the space of its RDB back, so the other user of the disk must be as greedy as it.
        with (small_disk / "other").open("wb", buffering=0) as other:
            while command.process.poll() is None:
                try:
                    other.write(bytes(4096))
                except OSError:
                    time.sleep(0.001)
        _check(command, 3, "The disk is full at", "free space")
        _no_whole_run(small_disk)

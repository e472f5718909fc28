# SPDX-License-Identifier: Apache-2.0
"""What has to be carried into a guest: the programs that its image lacks, where this host has them."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest

from forktail.errors import EnvironmentLacks
from forktail.lab.baggage import _libraries, _stripped, _tar, baggage
from forktail.lab.machine import Machine
from forktail.lab.run import check_fits
from forktail.workload import Load, Server, Workload


def _program(directory: Path, name: str, words: str) -> Path:
    path = directory / name
    path.write_text(f"#!/bin/sh\necho '{words}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host that has KeyDB and Memtier alone."""
    _program(tmp_path, "keydb-server", "KeyDB server v=6.3.4 sha=0:0")
    _program(tmp_path, "memtier_benchmark", "memtier_benchmark v=2.3.0 sha=0:0")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def _workload(engine: Any = "redis", generator: Any = "forktail-load", path: str = "") -> Workload:
    return Workload(server=Server(engine=engine, path=path), load=Load(generator=generator))


def test_what_the_image_has_is_not_carried(host: Path) -> None:
    assert baggage(_workload()) == {}
    assert baggage(_workload(generator="redis-benchmark")) == {}


def test_what_it_lacks_is(host: Path) -> None:
    assert baggage(_workload("keydb", "memtier_benchmark")) == {
        "server": host / "keydb-server",
        "load": host / "memtier_benchmark",
    }
    own = _program(host, "redis-5", "Redis server v=5.0.10 sha=0:0")
    assert baggage(_workload(path=str(own))) == {"server": own}


def test_what_this_host_lacks_is_told_before_a_guest_is_booted(host: Path) -> None:
    with pytest.raises(EnvironmentLacks, match="valkey-server is not on PATH"):
        check_fits(_workload("valkey"), Machine(cpus=2, memory_bytes=4 * 2**30))


def test_a_program_is_carried_whole_with_its_libraries() -> None:
    """As `true` does what it does without the part that a debugger needs."""
    true = Path("/bin/true")
    assert any(library.name.startswith("libc.so") for library in _libraries(true))
    content = _stripped(true)
    assert content[:4] == b"\x7fELF"
    with tarfile.open(fileobj=io.BytesIO(_tar([(Path("/usr/local/bin/true"), content)]))) as tar:
        (entry,) = tar.getmembers()
        assert (entry.name, entry.mode, entry.size) == ("usr/local/bin/true", 0o755, len(content))


def test_a_script_has_no_libraries(tmp_path: Path) -> None:
    assert _libraries(_program(tmp_path, "script", "hello")) == []

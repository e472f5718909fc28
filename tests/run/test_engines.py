# SPDX-License-Identifier: Apache-2.0
"""The engines beside Redis: found, told apart, configured as each wants it, and measured whole."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.run.conftest import Start

from forktail.errors import BadInput, EnvironmentLacks
from forktail.measure.engine import ENGINES, Engine, EngineProgram, find_program
from forktail.measure.server import Server as RunningServer
from forktail.measure.server import configuration
from forktail.workload import EngineName, Server, Workload

NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="eBPF probes need root")


def _needs(engine: EngineName) -> pytest.MarkDecorator:
    program = ENGINES[engine].program
    return pytest.mark.skipif(not shutil.which(program), reason=f"{program} is not on PATH")


def _calling_itself(directory: Path, words: str) -> str:
    """A program that says this when it is asked for its version."""
    path = directory / "a-server"
    path.write_text(f"#!/bin/sh\necho '{words}'\n")
    path.chmod(0o755)
    return str(path)


def _found(engine: Any, path: str = "") -> EngineProgram:
    return find_program(Workload(server=Server(engine=engine, path=path)))


@pytest.mark.parametrize(
    ("words", "engine", "version"),
    [
        ("Redis server v=5.0.10 sha=00000000:0 malloc=jemalloc-5.1.0 bits=64 build=1", "redis", "5.0.10"),
        ("KeyDB server v=6.2.0 sha=00000000:0 malloc=jemalloc-5.2.1 bits=64 build=1", "keydb", "6.2.0"),
        ("Valkey server v=8.0.1 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=1", "valkey", "8.0.1"),
    ],
)
def test_an_engine_is_known_by_what_it_calls_itself(tmp_path: Path, words: str, engine: str, version: str) -> None:
    path = _calling_itself(tmp_path, words)
    assert _found(engine, path).version == version
    other = "redis" if engine != "redis" else "keydb"
    with pytest.raises(BadInput, match=rf"but server.engine is '{other}': set server.engine to '{engine}'"):
        _found(other, path)


def test_what_is_no_engine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not call itself a Valkey server"):
        _found("valkey", _calling_itself(tmp_path, "Memcached server v=1.6"))


@pytest.mark.parametrize("engine", ENGINES)
def test_a_missing_program_is_named_with_its_mend(monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(EnvironmentLacks, match=rf"{engine}-server is not on PATH: .*, or set server.path") as caught:
        _found(engine)
    assert caught.value.exit_code == 3


def _lines(engine: Engine, version: str, threads: int = 0) -> dict[str, str]:
    workload = Workload(server=Server(engine=engine.name, threads=threads))
    text = configuration(workload, EngineProgram(engine, Path("/a"), version), 1, Path("/d"))
    return dict(line.split(" ", 1) for line in text.splitlines())


def test_a_configuration_has_what_its_engine_knows() -> None:
    redis, keydb, valkey = (ENGINES[name] for name in ("redis", "keydb", "valkey"))
    assert not {"disable-thp", "oom-score-adj", "io-threads"} & _lines(redis, "5.0.10").keys()
    assert _lines(redis, "7.0.15")["disable-thp"] == "yes"
    assert _lines(valkey, "8.0.1", threads=3)["io-threads"] == "3"
    assert "io-threads" not in _lines(valkey, "8.0.1")
    old, new = _lines(keydb, "6.2.0"), _lines(keydb, "6.3.2", threads=2)
    assert (old["server-threads"], new["server-threads"]) == ("4", "2")
    assert "use-fork" not in old
    assert new["use-fork"] == "yes"


@NEEDS_ROOT
@pytest.mark.parametrize(
    ("engine", "threads"),
    [pytest.param("keydb", 4, marks=_needs("keydb")), pytest.param("valkey", 1, marks=_needs("valkey"))],
)
def test_a_whole_run(start: Start, tiny: Path, tmp_path: Path, engine: str, threads: int) -> None:
    """Whether the generator was late is the host's affair; that the fork was seen and cross-checked is the engine's."""
    run = tmp_path / "out"
    arguments = ["--out", run, "--json", "--set", f"server.engine={engine}", "--set", "load.rate=500"]
    code, output, errors = start("run", tiny, *arguments).finish(120)
    assert code in (0, 1), errors
    summary = json.loads(output)
    told = [reason for reason in summary["reasons"] if "late" not in reason]
    assert told == []
    assert summary["engine"]["name"] == engine
    threads = min(threads, os.cpu_count() or threads)
    assert summary["server"]["threads"] == len(summary["server"]["serving_tids"]) == threads
    fewer = [warning for warning in summary["warnings"] if "threads and not with the 4 of server.threads" in warning]
    assert bool(fewer) == (engine == "keydb" and threads < 4)
    assert summary["fork"]["duration_us"] > 0
    assert summary["window"]["ended_by"]
    assert summary["info"]["rdb_last_bgsave_status"] == "ok"
    assert summary["queries"]["snapshot"]["count"] > 0
    assert summary["load"]["completed"] == summary["load"]["intended"]
    assert summary["attribution"]["threads"] == threads
    assert ("which of them served" in summary["answer"]) == (threads > 1)
    log = (run / "server" / "server.log").read_text()
    assert engine in log.lower()


@NEEDS_ROOT
@_needs("keydb")
def test_the_one_thread_of_keydb_that_serves_is_not_its_first(start: Start, tiny: Path, tmp_path: Path) -> None:
    """What its first thread waits for delays no query, and the fork is another thread's."""
    arguments = ["--set", "server.engine=keydb", "--set", "server.threads=1", "--set", "load.rate=500"]
    code, output, errors = start("run", tiny, "--out", tmp_path / "out", "--json", *arguments).finish(120)
    assert code in (0, 1), errors
    server = json.loads(output)["server"]
    assert server["threads"] == 1
    assert len(server["serving_tids"]) == 1
    assert server["serving_tids"] != [server["pid"]]
    assert "which of them served" not in json.loads(output)["answer"]


def test_old_engines_are_spoken_to_as_they_understand(tmp_path: Path) -> None:
    """Redis 5 knows no HELLO, and before version 7 INFO of two sections is a syntax error."""
    workload = Workload(server=Server(config={"rename-command": 'HELLO ""'}))
    server = RunningServer(workload, tmp_path / "server")
    try:
        server.wait_until_ready()
        together = server.info("persistence", "memory")
        server.program = EngineProgram(ENGINES["redis"], server.path, "6.2.0")
        assert server.info("persistence", "memory").keys() == together.keys()
        assert {"rdb_bgsave_in_progress", "used_memory"} <= together.keys()
        calls = server.client.info("commandstats")["cmdstat_info"]["calls"]
        assert calls == 3
    finally:
        server.end()

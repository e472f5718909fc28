# SPDX-License-Identifier: Apache-2.0
"""What is wrong is said in one sentence, with the code that docs/formats.md gives it."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.loadgen.conftest import Generator, Redis, StartStub, arguments, free_port

BAD_INPUT, ENVIRONMENT = 2, 3

RUN: dict[str, object] = {
    "port": 1,
    "rate": 1000,
    "queries": 100,
    "connections": 2,
    "keys": 100,
    "value_bytes": 10,
}


def refused(done: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    assert sentence.startswith("forktail-load: ")
    for part in parts:
        assert part in sentence


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("port", "0"),
        ("port", "65536"),
        ("port", "-1"),
        ("port", "http"),
        ("host", "localhost.example"),
        ("host", ""),
        ("rate", "0"),
        ("rate", "-5"),
        ("rate", "nan"),
        ("rate", "inf"),
        ("rate", "10k"),
        ("queries", "0"),
        ("queries", "1e6"),
        ("queries", "99999999999999999999999"),
        ("connections", "0"),
        ("connections", "2000000"),
        ("arrivals", "bursty"),
        ("keys", "0"),
        ("keys", "4294967297"),
        ("distribution", "normal"),
        ("gaussian-mean", "1.5"),
        ("gaussian-sigma", "0"),
        ("zipf-theta", "0"),
        ("zipf-theta", "x"),
        ("ratio", "1"),
        ("ratio", "0:0"),
        ("ratio", "1:-1"),
        ("ratio", "1:1:1"),
        ("ratio", "99999999999:1"),
        ("value-bytes", "0"),
        ("value-bytes", "1GiB"),
        ("value-entropy", "1.01"),
        ("value-entropy", "-0.1"),
        ("seed", "-1"),
        ("seed", "red"),
        ("drain-ms", "-1"),
        ("spin-us", "soon"),
        ("fifo", "0"),
        ("fifo", "100"),
        ("cpu", "-1"),
        ("log", ""),
    ],
)
def test_a_bad_value_is_named_with_its_option(load: Generator, option: str, value: str) -> None:
    words = arguments("run", **RUN, log=load.directory / "q.bin")
    done = load.call(*words, f"--{option}={value}")
    refused(done, BAD_INPUT, f"--{option} ", f"'{value}'" if value else "empty")


@pytest.mark.parametrize("option", ["port", "rate", "queries", "connections", "keys", "value-bytes", "log"])
def test_what_is_required_is_named(load: Generator, option: str) -> None:
    words = RUN | {"log": "q.bin"}
    del words[option.replace("-", "_")]
    refused(load.call(*arguments("run", **words)), BAD_INPUT, f"--{option} is required")


def test_unknown_words(load: Generator) -> None:
    refused(load.call(), BAD_INPUT, "command is missing")
    refused(load.call("flood"), BAD_INPUT, "unknown command 'flood'")
    refused(load.call("run", "--speed", "9"), BAD_INPUT, "--speed is no option of run")
    refused(load.call("run", "--speed=9"), BAD_INPUT, "--speed=9 is no option of run")
    refused(load.call("run", "-x"), BAD_INPUT, "-x is no option of run")
    refused(load.call("fill", "--rate", "9"), BAD_INPUT, "--rate is no option of fill")
    refused(load.call("run", "--rate"), BAD_INPUT, "--rate needs a value")
    refused(load.call("run", "fast"), BAD_INPUT, "'fast'")
    refused(load.call("run", "--rate", "5", "fast"), BAD_INPUT, "'fast'")
    refused(load.call("run", "--insert=yes"), BAD_INPUT, "--insert=yes")


def test_inserts_that_run_out_of_keys(load: Generator) -> None:
    words = arguments("schedule", rate=1, queries=10, keys=(1 << 32) - 5, insert=True)
    refused(load.call(*words), BAD_INPUT, "--keys", "--queries", "4294967296")


def test_help_and_version(load: Generator) -> None:
    for words in (["--help"], ["run", "--help"], ["fill", "-h"], ["schedule", "--help"]):
        done = load.call(*words)
        assert done.returncode == 0
        assert "example: forktail-load " in done.stdout
    assert load.call("--version").stdout.startswith("forktail-load ")


def test_the_examples_of_the_help_are_accepted(load: Generator) -> None:
    for command in ("fill", "run", "schedule"):
        example = load.call(command, "--help").stdout.split("example: ")[1].replace("\\\n", " ")
        words = shlex.split(example)[1:]
        if command != "schedule":
            words[words.index("--port") + 1] = str(free_port())
        done = load.call(*words, cwd=load.directory)
        assert done.returncode in (0, ENVIRONMENT), done.stderr
        assert "cannot connect" in done.stderr or done.stdout


@pytest.mark.parametrize("command", ["run", "fill"])
def test_nobody_listens(load: Generator, command: str) -> None:
    words: dict[str, object] = {"port": free_port(), "keys": 10, "value_bytes": 10}
    if command == "run":
        words = RUN | words | {"log": load.directory / "q.bin"}
    refused(load.call(*arguments(command, **words)), ENVIRONMENT, "cannot connect to 127.0.0.1", "Connection refused")
    assert list(load.directory.iterdir()) == []


def test_a_log_that_cannot_be_opened(load: Generator, stub: StartStub) -> None:
    words = RUN | {"port": stub("delay").port, "log": load.directory / "none" / "q.bin"}
    refused(load.call(*arguments("run", **words)), BAD_INPUT, "cannot open the log", "No such file or directory")


def test_more_queries_than_memory(load: Generator, stub: StartStub) -> None:
    words = RUN | {"port": stub("delay").port, "log": load.directory / "q.bin", "queries": 10**12}
    refused(load.call(*arguments("run", **words)), ENVIRONMENT, "1000000000000 queries", "memory")
    assert not (load.directory / "q.bin.tmp").exists()


def test_a_device_that_is_full(load: Generator, redis: Redis) -> None:
    words = RUN | {"port": redis.port, "log": "/dev/full"}
    done = load.call(*arguments("run", **words))
    assert done.returncode == ENVIRONMENT
    assert "cannot write the log /dev/full: No space left on device" in done.stderr
    assert '"end"' not in done.stdout
    assert Path("/dev/full").is_char_device()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", disk], check=True)
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_disk_too_small_shows_before_the_run(load: Generator, stub: StartStub, small_disk: Path) -> None:
    server = stub("delay")
    words = RUN | {"port": server.port, "log": small_disk / "q.bin", "queries": 100_000}
    refused(load.call(*arguments("run", **words)), ENVIRONMENT, "cannot write the log", "No space left on device")
    assert list(small_disk.iterdir()) == []
    assert server.stop() == [], "no query was sent"


def test_too_few_file_descriptors(load: Generator, stub: StartStub) -> None:
    words = RUN | {"port": stub("delay").port, "log": load.directory / "q.bin", "connections": 100}
    command = shlex.join([str(load.program), *arguments("run", **words)])
    done = subprocess.run(
        ["sh", "-c", f"ulimit -n 40; exec {command}"], capture_output=True, text=True, check=False, timeout=30
    )
    refused(done, ENVIRONMENT, "100 connections need 116 file descriptors", "the limit is 40")


def test_a_cpu_that_is_not_there(load: Generator, stub: StartStub) -> None:
    words = RUN | {"port": stub("delay").port, "log": load.directory / "q.bin", "cpu": 1023}
    refused(load.call(*arguments("run", **words)), ENVIRONMENT, "cannot stay on CPU 1023")


def test_a_priority_without_the_right_to_it(load: Generator, stub: StartStub) -> None:
    words = RUN | {"port": stub("delay").port, "log": load.directory / "q.bin", "fifo": 1}
    command: list[str] = [str(load.program), *arguments("run", **words)]
    if os.geteuid() == 0:
        command = ["setpriv", "--bounding-set=-sys_nice", "--inh-caps=-sys_nice", *command]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=30)
    refused(done, ENVIRONMENT, "cannot run under SCHED_FIFO: Operation not permitted")

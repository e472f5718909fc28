# SPDX-License-Identifier: Apache-2.0
"""The reply parser alone: by examples, and by fuzzing with a fixed seed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.loadgen.conftest import SOURCES

HERE = Path(__file__).parent
SANITIZED = ["-std=gnu11", "-g", "-O1", "-fno-sanitize-recover=all", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}"]


def compile_with(compiler: str, program: Path, sanitizers: str, *sources: str) -> subprocess.CompletedProcess[bytes]:
    files = [str(SOURCES / "reply.c"), *(str(HERE / source) for source in sources)]
    command = [compiler, *SANITIZED, f"-fsanitize={sanitizers}", "-o", str(program), *files]
    return subprocess.run(command, capture_output=True, check=False)


@pytest.fixture(scope="module")
def parser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("parser") / "parse_replies"
    compile_with("cc", program, "address,undefined", "parse_replies.c").check_returncode()
    return program


@pytest.mark.parametrize(
    ("stream", "replies"),
    [
        (b"+OK\r\n", ["ok"]),
        (b"+\r\n", ["ok"]),
        (b"-ERR bad thing\r\n+OK\r\n", ["error ERR bad thing", "ok"]),
        (b"-\r\n", ["error "]),
        (b"-ERR first\r\n-\r\n", ["error ERR first", "error "]),
        (b"-" + b"x" * 1000 + b"\r\n", ["error " + "x" * 159]),
        (b":0\r\n:-12\r\n:+3\r\n", ["ok"] * 3),
        (b"$5\r\nhello\r\n$0\r\n\r\n", ["ok", "ok"]),
        (b"$4\r\n\r\n\r\n\r\n", ["ok"]),
        (b"$-1\r\n", ["nil"]),
        (b"*-1\r\n", ["nil"]),
        (b"_\r\n", ["nil"]),
        (b"*0\r\n", ["ok"]),
        (b"*1\r\n$-1\r\n+OK\r\n", ["ok", "ok"]),
        (b"*2\r\n*2\r\n:1\r\n-ERR inner\r\n$1\r\nx\r\n-ERR outer\r\n", ["ok", "error ERR outer"]),
        (b"*2\r\n:1\r\n", ["incomplete"]),
        (b"$3\r\nab", ["incomplete"]),
        (b"+OK\r", ["incomplete"]),
        (b"HTTP/1.1 400\r\n", ["invalid"]),
        (b"\r\n", ["invalid"]),
        (b"\0", ["invalid"]),
        (b"+OK\n", ["invalid"]),
        (b"+OK\rx", ["invalid"]),
        (b":\r\n", ["invalid"]),
        (b":1x\r\n", ["invalid"]),
        (b":99999999999999999999\r\n", ["invalid"]),
        (b"$-2\r\n", ["invalid"]),
        (b"$+1\r\n", ["invalid"]),
        (b"$536870913\r\n", ["invalid"]),
        (b"*1048577\r\n", ["invalid"]),
        (b"$3\r\nabcd\r\n", ["invalid"]),
        (b"$3\r\nabc\rx", ["invalid"]),
        (b"_x\r\n", ["invalid"]),
        (b"+" + b"x" * 70_000, ["invalid"]),
    ],
)
def test_a_stream_parses_as(parser: Path, stream: bytes, replies: list[str]) -> None:
    done = subprocess.run([parser], input=stream, capture_output=True, check=True)
    assert done.stdout.decode().splitlines() == replies


def test_no_stream_breaks_the_parser(tmp_path: Path) -> None:
    """libFuzzer with a fixed seed where clang has its runtime, and the plain driver everywhere."""
    driver = tmp_path / "driver"
    compile_with("cc", driver, "address,undefined", "fuzz_reply.c", "fuzz_driver.c").check_returncode()
    done = subprocess.run([driver], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr

    fuzzer = tmp_path / "fuzzer"
    if compile_with("clang", fuzzer, "fuzzer,address,undefined", "fuzz_reply.c").returncode != 0:
        return
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "replies").write_bytes(b"+OK\r\n-ERR no\r\n:12\r\n*2\r\n$3\r\nabc\r\n$-1\r\n_\r\n")
    limits = ["-seed=1", "-runs=100000", "-max_len=256", "-max_total_time=30"]
    command = [str(fuzzer), *limits, str(corpus)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr[-2000:]

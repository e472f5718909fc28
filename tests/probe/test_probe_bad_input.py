# SPDX-License-Identifier: Apache-2.0
"""What is wrong is said in one sentence, with the code that docs/formats.md gives it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

BAD_INPUT, ENVIRONMENT = 2, 3
HERE = str(os.getpid())


def _run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)


def _refused(done: subprocess.CompletedProcess[str], code: int, *parts: str) -> None:
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    (sentence,) = done.stderr.splitlines()
    for part in parts:
        assert part in sentence


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        ([], ["--pid PID"]),
        (["--pid", HERE], ["--events FILE"]),
        (["--pid", "0", "--events", "e"], ["--pid", "'0'"]),
        (["--pid", "-1", "--events", "e"], ["--pid", "'-1'"]),
        (["--pid", "12x", "--events", "e"], ["--pid", "'12x'"]),
        (["--pid", "99999999999999999999", "--events", "e"], ["--pid"]),
        (["--pid", HERE, "--events", "e", "--buffer-mib", "3"], ["power of two", "'3'"]),
        (["--pid", HERE, "--events", "e", "--buffer-mib", "0"], ["power of two"]),
        (["--pid", HERE, "--events", "e", "--buffer-mib", "2048"], ["1024"]),
        (["--pid", HERE, "--events", "e", "--fault-min-us", "1.5"], ["--fault-min-us", "'1.5'"]),
        (["--pid", HERE, "--events", "e", "--run-queue-min-us", ""], ["--run-queue-min-us", "''"]),
        (["--pid", HERE, "--events", "e", "--measure", "fork,nothing"], ["page_table_copy"]),
        (["--pid", HERE, "--events", "e", "--avoid", "fentry"], ["fexit", "'fentry'"]),
        (["--pid", HERE, "--events", "e", "--avoid", ",".join(["sys_enter"] * 17)], ["at most 16"]),
        (["--pid", HERE, "--events", "e", "--symbols", "/nowhere/symbols"], ["/nowhere/symbols", "No such file"]),
        (["--pid", HERE, "--events", "e", "stray"], ["'stray'"]),
        (["--nonsense"], ["nonsense"]),
        (["--pid"], ["pid"]),
    ],
)
def test_bad_input(arguments: list[str], parts: list[str], either_probe: Path) -> None:
    _refused(_run(either_probe, *arguments), BAD_INPUT, *parts)


@pytest.mark.parametrize("line", ["lonely", "name 6 label", "name -1 label", "name x label", "name 1", "n" * 300])
def test_a_malformed_list_of_symbols(line: str, tmp_path: Path, either_probe: Path) -> None:
    symbols = tmp_path / "symbols"
    symbols.write_text(f"# a comment\n\ncopy_pmd_range 5 fine\n{line}\n")
    done = _run(either_probe, "--pid", HERE, "--events", str(tmp_path / "e"), "--symbols", str(symbols))
    _refused(done, BAD_INPUT, str(symbols), "line 4")


def test_no_such_process(either_probe: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    done = _run(either_probe, "--pid", str(process.pid), "--events", str(tmp_path / "e"))
    _refused(done, ENVIRONMENT, f"no process {process.pid}")


@pytest.mark.usefixtures("bpf_works")
def test_a_place_that_cannot_be_written(either_probe: Path, tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "events.bin"
    _refused(_run(either_probe, "--pid", HERE, "--events", str(path)), BAD_INPUT, str(path), "No such file")


def test_not_root(plain_probe: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can start it as somebody else")
    program = tmp_path / "forktail-probe"
    program.write_bytes(plain_probe.read_bytes())
    program.chmod(0o755)
    for directory in (tmp_path, *tmp_path.parents[:2]):
        directory.chmod(0o755)
    done = subprocess.run(
        [program, "--dry-run"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30, user=65534
    )
    _refused(done, ENVIRONMENT, "root")


@pytest.mark.usefixtures("bpf_works")
def test_the_probes_own_symbols_can_be_replaced(plain_probe: Path, tmp_path: Path) -> None:
    symbols = tmp_path / "symbols"
    symbols.write_text("no_such_function 1 of mine\n")
    done = _run(plain_probe, "--dry-run", "--symbols", str(symbols))
    assert done.returncode == 0
    assert '"probe":"fexit:no_such_function","errno":2' in done.stdout
    assert "copy_pmd_range" not in done.stdout


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version(option: str, either_probe: Path) -> None:
    done = _run(either_probe, option)
    assert done.returncode == 0
    assert done.stderr == ""
    assert done.stdout.startswith("Usage: forktail-probe" if option == "--help" else "forktail-probe 0.")
    assert ("Example:" in done.stdout) == (option == "--help")

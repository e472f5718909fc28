# SPDX-License-Identifier: Apache-2.0
"""What is kept of a boot, and what is run again."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.kernel.boots import Kept, parts
from tests.kernel.guest import Boot, Program

_WHOLE = """kernel 6.1.0 #abc
begin storm 1
ok 1 - it held
1..1
end storm 1 0
begin pins 1
not ok 1 - it leaked
1..1
end pins 1 1
begin dmesg -
end dmesg - 0
"""


@pytest.fixture
def initramfs(tmp_path: Path) -> Path:
    for name in ("init", "bin/busybox", "tests/storm", "tests/pins"):
        path = tmp_path / "build/root" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path / "build/initramfs.cpio"


def _keep(tmp_path: Path, initramfs: Path, console: str) -> Kept:
    image = tmp_path / "bzImage"
    image.write_text("a kernel")
    kept = Kept(tmp_path / "kept", ("odf", "1"), image, initramfs)
    kept.write(Boot(console, date="2026-01-31 12:00 UTC"))
    return kept


def test_a_program_that_passed_is_kept(tmp_path: Path, initramfs: Path) -> None:
    [(name, program)] = _keep(tmp_path, initramfs, _WHOLE).read().items()
    assert (name, program.points, program.date) == ("storm", 1, "2026-01-31 12:00 UTC")
    assert program.kernel == "6.1.0 #abc"
    assert Boot("", kept={("storm", "1"): program}).programs["storm", "1"].passed


@pytest.mark.parametrize(
    "console",
    [
        _WHOLE.replace("begin dmesg -\nend dmesg - 0\n", ""),
        _WHOLE.replace("end dmesg - 0\n", ""),
        _WHOLE.replace("end dmesg", "WARNING: at mm/memory.c:1\nend dmesg"),
        _WHOLE.replace("1..1", "1..2"),
        _WHOLE.replace("end storm 1 0", "end storm 1 137"),
    ],
    ids=["cut off", "cut off in its log", "complaint", "points missing", "killed"],
)
def test_nothing_is_kept_of_a_boot_that_says_less(tmp_path: Path, initramfs: Path, console: str) -> None:
    assert _keep(tmp_path, initramfs, console).read() == {}


def test_of_guests_one_after_another_all_is_told() -> None:
    first = Boot(_WHOLE.replace("begin dmesg -", "BUG: one"), kept={("victims", "1"): Program(["ok 1", "1..1"], 0)})
    both = Boot(_WHOLE.replace("storm", "upkeep").replace("end dmesg", "WARNING: two\nend dmesg"), before=first)
    assert {name for name, _ in both.programs} == {"victims", "storm", "pins", "upkeep", "dmesg"}
    assert both.complaints == ["BUG: one", "WARNING: two"]
    assert Boot(_WHOLE, before=Boot(_WHOLE)).ended
    assert not Boot(_WHOLE, before=Boot(_WHOLE.replace("end dmesg - 0", ""))).ended


def test_what_kcsan_watched_is_told_of_each_program() -> None:
    console = _WHOLE.replace("end storm", "# KCSAN watched 1234 accesses\nend storm")
    programs = Boot(console).programs
    assert programs["storm", "1"].passed
    assert (programs["storm", "1"].watched, programs["pins", "1"].watched) == (1234, 0)


def test_a_long_program_has_a_guest_of_its_own() -> None:
    assert parts(["held", "pins", "storm", "threads"]) == [["pins", "threads"], ["held"], ["storm"]]
    assert parts(["storm"]) == [["storm"]]
    assert parts([]) == []


@pytest.mark.parametrize("changed", ["init", "bin/busybox", "tests/storm"])
def test_what_has_changed_is_run_again(tmp_path: Path, initramfs: Path, changed: str) -> None:
    _keep(tmp_path, initramfs, _WHOLE)
    (initramfs.parent / "root" / changed).write_text("another")
    image = tmp_path / "bzImage"
    assert Kept(tmp_path / "kept", ("odf", "1"), image, initramfs).read() == {}
    assert Kept(tmp_path / "kept", ("odf", "0"), image, initramfs).read() == {}

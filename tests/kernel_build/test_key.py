# SPDX-License-Identifier: Apache-2.0
"""The key of a kernel: other inputs, another kernel; the same inputs, the same one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kernel_build.conftest import StandIn

from forktail.kernel import key
from forktail.kernel.series import CHECKS, read_series
from forktail.kernel.source import Source


def key_of(stand_in: StandIn, flavour: str = "default", checks: str | None = None) -> str:
    series = read_series(stand_in.configs)
    return key.of(key.inputs(Source(stand_in.tree), series, series.fragments(flavour, checks)))


def append(path: Path) -> None:
    path.write_text(path.read_text() + "\n")


CHANGES: dict[str, Callable[[StandIn], object]] = {
    "a patch": lambda stand_in: append(stand_in.patch),
    "a patch's name": lambda stand_in: stand_in.patch.rename(stand_in.patch.with_name("0002-later.patch")),
    "a further patch": lambda stand_in: shutil.copy(stand_in.patch, stand_in.patch.with_name("0002-again.patch")),
    "the base configuration": lambda stand_in: append(stand_in.configs / "base.config"),
    "the flavour's configuration": lambda stand_in: append(stand_in.configs / "default.config"),
    "a file of the source": lambda stand_in: append(stand_in.tree / "mm" / "other.c"),
    "a file's name": lambda stand_in: (stand_in.tree / "mm" / "other.c").rename(stand_in.tree / "mm" / "another.c"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_each_input_changes_the_key(stand_in: StandIn, change: Callable[[StandIn], object]) -> None:
    before = key_of(stand_in)
    assert key_of(stand_in) == before
    change(stand_in)
    assert key_of(stand_in) != before


def test_flavours_and_what_checks_them_have_keys_of_their_own(stand_in: StandIn) -> None:
    keys = {key_of(stand_in, flavour, checks) for flavour in ("default", "other") for checks in (None, *CHECKS)}
    assert len(keys) == 6


def test_what_kcsan_looks_at_changes_the_key(stand_in: StandIn) -> None:
    series = read_series(stand_in.configs)
    source, fragments = Source(stand_in.tree), series.fragments("default", "races")
    keys = {key.of(key.inputs(source, series, fragments, watched)) for watched in ([], ["mm/new.o"], ["mm/%"])}
    assert len(keys) == 3


def test_what_does_not_go_into_a_kernel_leaves_its_key(stand_in: StandIn) -> None:
    before = key_of(stand_in)
    append(stand_in.configs / "other.config")
    append(stand_in.configs / "debug.config")
    append(stand_in.configs / "races.config")
    (stand_in.tree / ".git").mkdir()
    (stand_in.tree / ".git" / "index").write_text("x")
    assert key_of(stand_in) == before


@pytest.mark.parametrize("tool", ["gcc", "ld", "pahole"])
def test_another_version_of_a_tool_changes_the_key(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    before = key_of(stand_in)
    other = tmp_path / "bin" / tool
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho version 99\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", f"{other.parent}:{os.environ['PATH']}")
    assert key_of(stand_in) != before


def test_a_tarball_is_known_by_its_content(tmp_path: Path) -> None:
    one, two = tmp_path / "one.tar.xz", tmp_path / "two.tar.xz"
    one.write_bytes(b"same")
    two.write_bytes(b"same")
    assert Source(one).digest == Source(two).digest
    two.write_bytes(b"other")
    assert Source(one).digest != Source(two).digest

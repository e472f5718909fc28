# SPDX-License-Identifier: Apache-2.0
"""The bundled series against the real source: patches, fragments, and what Kconfig makes of them."""

from __future__ import annotations

import filecmp
import re
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from tests.kernel_build.conftest import CONFIGS

from forktail.errors import BadInput
from forktail.kernel import cache
from forktail.kernel.buildtree import BuildTree
from forktail.kernel.options import read_options
from forktail.kernel.progress import Silence
from forktail.kernel.series import CHECKS, Series, read_series
from forktail.kernel.worktree import WorkTree

PATCHES = sorted(CONFIGS.glob("patches/*"))
FRAGMENTS = sorted(CONFIGS.glob("*.config"))
VARIANTS = [(flavour, checks) for flavour in read_series(CONFIGS).flavours for checks in (None, *CHECKS)]


def name(path: Path) -> str:
    return path.name[:40]


@pytest.mark.parametrize("patch", PATCHES, ids=name)
def test_a_patch_is_as_kernel_maintainers_want_it(patched: WorkTree, tmp_path: Path, patch: Path) -> None:
    checkpatch = patched.tree / "scripts" / "checkpatch.pl"
    done = subprocess.run(
        [checkpatch, "--strict", "--no-summary", f"--root={patched.tree}", patch],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "ERROR" not in done.stdout
    assert "WARNING" not in done.stdout
    assert "CHECK" not in done.stdout


@pytest.mark.parametrize("patch", PATCHES, ids=name)
def test_a_patch_says_from_whom_and_why(patch: Path) -> None:
    head, separator, _ = patch.read_text().partition("\n---\n")
    assert separator
    assert re.search(r"^SPDX-License-Identifier: GPL-2.0-only$", head, re.MULTILINE)
    assert re.search(r"^From: forktail maintainers <maintainers@forktail.invalid>$", head, re.MULTILINE)
    assert re.search(r"^Signed-off-by: forktail maintainers <maintainers@forktail.invalid>$", head, re.MULTILINE)
    assert len(head.splitlines()) > 10


def test_a_series_that_is_taken_back_leaves_the_source_as_it_was(series: Series, patched: WorkTree) -> None:
    files = series.touched
    with_patches = {file: (patched.tree / file).stat().st_mtime_ns for file in files}
    patched.prepare(series, Silence())
    assert {file: (patched.tree / file).stat().st_mtime_ns for file in files} == with_patches
    without = replace(series)
    without.__dict__["patches"] = []
    patched.prepare(without, Silence())
    pristine = patched.source.path
    for file in files:
        assert (patched.tree / file).exists() == (pristine / file).exists()
    kept = [file for file in files if (pristine / file).exists()]
    assert filecmp.cmpfiles(pristine, patched.tree, kept, shallow=False)[1:] == ([], [])
    patched.prepare(series, Silence())


@pytest.mark.parametrize("fragment", FRAGMENTS, ids=name)
def test_a_fragment_names_an_option_once_and_kconfig_knows_it(patched: WorkTree, fragment: Path) -> None:
    names = [name for name, _ in read_options(fragment)]
    assert [name for name, count in Counter(names).items() if count > 1] == []
    known = set()
    for path in patched.tree.rglob("Kconfig*"):
        known.update(re.findall(r"^\s*(?:menu)?config (\w+)", path.read_text(errors="replace"), re.MULTILINE))
    assert [name for name in names if name.removeprefix("CONFIG_") not in known] == []


def build_tree(patched: WorkTree, directory: Path) -> BuildTree:
    return BuildTree(patched.tree, directory / "build", directory / "log", "0", "")


@pytest.mark.parametrize(("flavour", "checks"), VARIANTS)
def test_kconfig_keeps_every_option(
    series: Series, patched: WorkTree, tmp_path: Path, flavour: str, checks: str | None
) -> None:
    tree = build_tree(patched, tmp_path)
    tree.configure(patched.tree / series.defconfig, series.fragments(flavour, checks))
    options = dict(read_options(tree.directory / ".config"))
    assert options["CONFIG_LOCALVERSION"] == f'"-forktail-{flavour}"'
    assert "m" not in options.values()


def test_an_option_that_kconfig_drops_is_an_error(series: Series, patched: WorkTree, tmp_path: Path) -> None:
    fragment = tmp_path / "mine.config"
    fragment.write_text("CONFIG_NO_SUCH_OPTION=y\n# CONFIG_MMU is not set\n")
    with pytest.raises(BadInput) as raised:
        build_tree(patched, tmp_path).configure(patched.tree / series.defconfig, [fragment])
    assert "CONFIG_NO_SUCH_OPTION=y of mine.config became n" in str(raised.value)
    assert "CONFIG_MMU=n of mine.config became y" in str(raised.value)


def test_kcsan_looks_at_what_the_patches_make_and_not_at_what_checks_it(series: Series) -> None:
    assert series.watched("races") == ["mm/odf.o", "mm/async_fork.o"]
    assert series.watched("debug") == series.watched(None) == []


@pytest.mark.parametrize("flavour", read_series(CONFIGS).flavours)
def test_the_copying_of_page_tables_can_be_probed(flavour: str) -> None:
    built = cache.find(flavour)
    if built is None:
        pytest.skip(f"not built yet: forktail kernel build {flavour}")
    symbols = subprocess.run(["nm", built.vmlinux], check=True, capture_output=True, text=True).stdout
    assert re.search(r" t copy_pmd_range$", symbols, re.MULTILINE)
    for event in ("start", "sync_begin", "sync_end", "done", "abort"):
        assert f" __tracepoint_fork_pt_{event}\n" in symbols
    types = subprocess.run(
        ["bpftool", "btf", "dump", "file", built.vmlinux], check=True, capture_output=True, text=True
    )
    assert "FUNC 'copy_pmd_range'" in types.stdout

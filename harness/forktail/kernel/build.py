# SPDX-License-Identifier: Apache-2.0
"""Build a flavour, or take it from the cache."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from forktail.errors import EnvironmentLacks
from forktail.kernel import cache, key, toolchain
from forktail.kernel.buildtree import BuildTree
from forktail.kernel.cache import BuiltKernel
from forktail.kernel.progress import Progress, Silence
from forktail.kernel.series import Series, read_series, with_checks
from forktail.kernel.source import Source, find_source
from forktail.kernel.worktree import WorkTree

_TREE_BYTES = 2 * 2**30
_BUILD_BYTES = 4 * 2**30
_CHECKED_BUILD_BYTES = 8 * 2**30


def check_disk(work: WorkTree, build: Path, checks: str | None, whole_build: int | None = None) -> None:
    """EnvironmentLacks when the disk is too small for a build in `build`, which takes `whole_build` bytes at first."""
    whole_build = whole_build or (_CHECKED_BUILD_BYTES if checks else _BUILD_BYTES)
    needed = (0 if work.tree.exists() else _TREE_BYTES) + (whole_build // 4 if build.exists() else whole_build)
    place = cache.cache_directory()
    free = shutil.disk_usage(place).free
    if free < needed:
        raise EnvironmentLacks(
            f"The build needs {needed / 2**30:.1f} GiB at {place}, and {free / 2**30:.1f} GiB are free: "
            "free space (`forktail kernel clean` may), or set XDG_CACHE_HOME elsewhere."
        )


def _keep(tree: BuildTree, directory: Path) -> None:
    """Copy what a kernel is used by; the build tree belongs to the next flavour."""
    for source, name in {
        tree.directory / "arch/x86/boot/bzImage": "bzImage",
        tree.directory / "vmlinux": "vmlinux",
        tree.directory / ".config": "config",
        tree.log: "build.log",
    }.items():
        shutil.copyfile(source, directory / name)


def _build(flavour: str, checks: str | None, series: Series, source: Source, progress: Progress) -> BuiltKernel:
    fragments = series.fragments(flavour, checks)
    watched = series.watched(checks)
    made_of = key.inputs(source, series, fragments, watched)
    kernel_key = key.of(made_of)
    target = cache.entry(flavour, checks, kernel_key)
    if built := cache.read_entry(target):
        return built  # Another process built it while we waited.
    work = WorkTree(cache.cache_directory() / "work" / source.identity, source)
    check_disk(work, work.build_directory(checks), checks)
    work.prepare(series, progress)
    name = with_checks(flavour, checks)
    tree = BuildTree(
        work.tree,
        work.build_directory(checks),
        work.directory / f"{name}.log",
        build_id=kernel_key[: key.SHORT],
        suffix=with_checks("", checks),
        watched=watched,
    )
    progress.begin(f"configure {name}")
    tree.configure(work.tree / series.defconfig, fragments)
    began = time.monotonic()
    tree.compile(name, progress)
    partial = target.with_name(f"{target.name}{cache.PARTIAL}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    _keep(tree, partial)
    cache.write_manifest(
        partial,
        {
            "flavour": flavour,
            "checks": checks,
            "release": tree.release(),
            "key": kernel_key,
            "built": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - began, 1),
            "source": str(source.path),
            "inputs": made_of,
        },
    )
    partial.rename(target)
    found = cache.read_entry(target)
    assert found is not None
    return found


def build(
    flavour: str,
    checks: str | None = None,
    series: Series | None = None,
    source: Path | None = None,
    progress: Progress | None = None,
) -> BuiltKernel:
    """The kernel of a flavour, built unless the cache has it; waits while another process builds."""
    progress = progress or Silence()
    series = series or read_series()
    fragments = series.fragments(flavour, checks)
    toolchain.check_tools()
    base = find_source(series, source, progress)
    if built := cache.read_entry(
        cache.entry(flavour, checks, key.of(key.inputs(base, series, fragments, series.watched(checks))))
    ):
        return built  # Without the lock: a build of another kernel may hold it for an hour.
    with told_of_the_cache(), cache.locked(progress):
        return _build(flavour, checks, series, base, progress)


@contextmanager
def told_of_the_cache() -> Iterator[None]:
    """An EnvironmentLacks where the cache's file system fails us."""
    try:
        yield
    except OSError as error:
        place = error.filename or cache.cache_directory()
        raise EnvironmentLacks(f"{place}: {error.strerror}. Mend that, or set XDG_CACHE_HOME elsewhere.") from error

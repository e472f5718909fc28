# SPDX-License-Identifier: Apache-2.0
"""A flavour as a Debian package for hosts, built by the kernel's own `bindeb-pkg`, or taken from the cache."""

from __future__ import annotations

import hashlib
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from forktail.errors import RunFailed
from forktail.kernel import cache, key, toolchain
from forktail.kernel.build import check_disk, told_of_the_cache
from forktail.kernel.buildtree import BuildTree
from forktail.kernel.cache import BuiltPackage
from forktail.kernel.hostconfig import DEBIAN, LAB, host_config
from forktail.kernel.progress import Progress, Silence
from forktail.kernel.series import BASE, HOST, Series, read_series, with_checks
from forktail.kernel.source import Source, find_source
from forktail.kernel.worktree import WorkTree

_FULL_BUILD_BYTES = 25 * 2**30
"""Debian's configuration: four thousand modules, each with its debugging information until it is packed."""


def _inputs(
    source: Source, series: Series, fragments: list[Path], watched: list[str], base: bytes | None
) -> dict[str, Any]:
    digest = hashlib.sha256(base).hexdigest() if base else None
    return key.inputs(source, series, fragments, watched) | {"package": "bindeb-pkg", "host_config_sha256": digest}


def _take(tree: BuildTree, release: str, version: str) -> Path:
    """The image's package among those that bindeb-pkg left beside the build tree; the others go."""
    made = sorted(tree.directory.parent.glob(f"linux-*_{version}_*"))
    found = [path for path in made if path.suffix == ".deb" and path.name.startswith(f"linux-image-{release}_")]
    for path in made:
        if path not in found:
            path.unlink()
    if len(found) != 1:
        raise RunFailed(f"bindeb-pkg left no package of {release} in {tree.directory.parent}: see {tree.log}.")
    return found[0]


def _build(
    flavour: str, checks: str | None, series: Series, source: Source, name: str, base: bytes | None, progress: Progress
) -> BuiltPackage:
    fragments = series.fragments(flavour, checks, HOST if base else BASE)
    watched = series.watched(checks)
    made_of = _inputs(source, series, fragments, watched, base)
    package_key = key.of(made_of)
    label = f"{with_checks(flavour, checks)}-deb"
    target = cache.cache_directory() / f"{label}-{package_key[: key.SHORT]}"
    if built := cache.read_package(target):
        return built  # Another process built it while we waited.
    work = WorkTree(cache.cache_directory() / "work" / source.identity, source)
    # bindeb-pkg leaves its packages beside the build tree, and a guest's kernel is packed where it was compiled.
    directory = work.directory / with_checks("host", checks) / "build" if base else work.build_directory(checks)
    check_disk(work, directory, checks, _FULL_BUILD_BYTES if name == DEBIAN else None)
    work.prepare(series, progress)
    directory.mkdir(parents=True, exist_ok=True)
    tree = BuildTree(
        work.tree,
        directory,
        work.directory / f"{label}.log",
        build_id=package_key[: key.SHORT],
        suffix=with_checks("", checks),
        watched=watched,
    )
    progress.begin(f"configure {label}")
    defconfig = work.tree / series.defconfig
    if base:
        defconfig = directory.parent / "host.config"
        defconfig.write_bytes(base)
    tree.configure(defconfig, fragments)
    began = time.monotonic()
    version = f"{series.version}-{package_key[: key.SHORT]}"
    tree.package(label, version, progress)
    release = tree.release()
    deb = _take(tree, release, version)
    partial = target.with_name(f"{target.name}{cache.PARTIAL}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    shutil.move(deb, partial / deb.name)
    shutil.copyfile(directory / ".config", partial / "config")
    shutil.copyfile(tree.log, partial / "build.log")
    cache.write_package(
        partial,
        {
            "flavour": flavour,
            "checks": checks,
            "host_config": name,
            "release": release,
            "version": version,
            "package": deb.name,
            "key": package_key,
            "built": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - began, 1),
            "source": str(source.path),
            "inputs": made_of,
        },
    )
    partial.rename(target)
    found = cache.read_package(target)
    assert found is not None
    return found


def build_package(
    flavour: str,
    checks: str | None = None,
    series: Series | None = None,
    source: Path | None = None,
    progress: Progress | None = None,
    config: str = DEBIAN,
) -> BuiltPackage:
    """The package of a flavour's kernel, built unless the cache has it; waits while another process builds.

    `config` is `debian`, `lab` or the path of a host's configuration (`hostconfig.host_config`).
    """
    progress = progress or Silence()
    series = series or read_series()
    series.fragments(flavour, checks)
    toolchain.check_tools(packaging=True)
    base = host_config(config, series, progress)
    name = config if config in (DEBIAN, LAB) else str(Path(config).resolve())
    found = find_source(series, source, progress)
    with told_of_the_cache(), cache.locked(progress):
        return _build(flavour, checks, series, found, name, base, progress)

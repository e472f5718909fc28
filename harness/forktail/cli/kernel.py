# SPDX-License-Identifier: Apache-2.0
"""`forktail kernel`: build the kernels under comparison, list them, remove them."""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

from forktail.cli.console import Json, new_app, notes, print_json, told_clearly
from forktail.errors import BadInput
from forktail.kernel import cache
from forktail.kernel.build import build
from forktail.kernel.cache import Built, BuiltKernel
from forktail.kernel.hostconfig import DEBIAN
from forktail.kernel.package import build_package
from forktail.kernel.series import read_series

app = new_app("Build the kernels under comparison from one source and one patch series, and keep them.")

_PLAIN_STEPS = 500
_ENOUGH = 0.02
"""The share of a step that must be done before the rest can be estimated."""


def time_left(seconds: float, done: float, total: float | None) -> str:
    """How long the rest takes if it goes on as before; empty where too little is done to say, or nothing is left."""
    if not total or done >= total or done < total * _ENOUGH:
        return ""
    return f"about {max(1, round(seconds / done * (total - done) / 60))} min left"


class Steps:
    """The steps of a build as bars on a terminal, as plain lines elsewhere; use it as a context."""

    def __init__(self) -> None:
        self._task: TaskID | None = None
        self._told = 0
        self._began = 0.0
        self._total: int | None = None
        self._bars = Progress(
            TextColumn("{task.description:<24}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
            console=notes,
            disable=not notes.is_terminal,
        )

    def __enter__(self) -> Steps:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._bars.stop()

    def _end(self) -> None:
        if self._task is not None:
            done = self._bars.tasks[self._task].completed
            self._bars.update(self._task, total=done or 1, completed=done or 1)
            self._bars.stop_task(self._task)

    def begin(self, step: str, total: int | None = None) -> None:
        """See `kernel.progress.Progress`."""
        self._end()
        self._told = 0
        if not notes.is_terminal:
            notes.print(f"{step} ...", markup=False, highlight=False)
        self._began, self._total = monotonic(), total
        self._task = self._bars.add_task(step, total=total, left="")

    def advance(self, done: int) -> None:
        """See `kernel.progress.Progress`."""
        assert self._task is not None
        left = time_left(monotonic() - self._began, done, self._total)
        self._bars.update(self._task, completed=done, left=left)
        if not notes.is_terminal and done >= self._told + _PLAIN_STEPS:
            self._told = done
            of = f" of about {self._total}" if self._total else ""
            notes.print(f"  {done}{of} objects{left and ', '}{left}", highlight=False)


Configs = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The patch series and configurations [kernel-configs/linux-6.1].")
]


@app.command("build", epilog="Example: forktail kernel build odf --debug")
def build_flavour(
    flavour: Annotated[str, typer.Argument(help="A flavour, or all of them.")] = "default",
    debug: Annotated[bool, typer.Option("--debug", help="With KASAN, lockdep and page-table checks; slow.")] = False,
    races: Annotated[bool, typer.Option("--races", help="With KCSAN, kmemleak and full preemption; slow.")] = False,
    source: Annotated[
        Path | None, typer.Option(metavar="PATH", help="A tarball or a tree of Linux 6.1 [Debian's package].")
    ] = None,
    configs: Configs = None,
    deb: Annotated[
        bool, typer.Option("--deb", help="Build a Debian package of it for hosts instead of a guest's image.")
    ] = False,
    host_config: Annotated[
        str | None,
        typer.Option(
            metavar="debian|lab|PATH",
            help="With --deb: what the kernel is configured from, Debian's own (hours), a guest's, or a file [debian].",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Build a kernel unless the cache has it, and print where its image or its package lies."""
    with told_clearly():
        series = read_series(configs)
        flavours = series.flavours if flavour == "all" else [flavour]
        if host_config is not None and not deb:
            raise BadInput("--host-config is what a package for hosts is configured from: give --deb with it.")
        if debug and races:
            raise BadInput(
                "--debug and --races are two kernels, for KASAN and KCSAN exclude each other: build one by one."
            )
        checks = "debug" if debug else "races" if races else None
        if deb:
            with Steps() as steps:
                packages = [
                    build_package(name, checks, series, source, steps, host_config or DEBIAN) for name in flavours
                ]
            if as_json:
                print_json({"packages": [package.as_json() for package in packages]})
            else:
                for package in packages:
                    print(f"{package.release}  {package.deb}")
            return
        with Steps() as steps:
            kernels = [build(name, checks, series, source, steps) for name in flavours]
        if as_json:
            print_json({"kernels": [kernel.as_json() for kernel in kernels]})
        else:
            for kernel in kernels:
                print(f"{kernel.release}  {kernel.image}")


@app.command("list", epilog="Example: forktail kernel list --json")
def list_kernels(as_json: Json = False) -> None:
    """List the kernels and packages in the cache, the newest first."""
    with told_clearly():
        kernels, packages = cache.entries(), cache.packages()
        if as_json:
            print_json(
                {
                    "kernels": [kernel.as_json() for kernel in kernels],
                    "packages": [package.as_json() for package in packages],
                }
            )
            return
        if not kernels and not packages:
            print(f"No kernel in {cache.cache_directory()}: `forktail kernel build all` builds them.")
            return
        table = Table("release", "what", "build", "built", "size", Column("directory", overflow="fold"))
        all_built: list[Built] = [*kernels, *packages]
        for built in all_built:
            seconds, size = f"{built.manifest['seconds']:.0f} s", f"{built.bytes / 2**20:.0f} MiB"
            what = "kernel" if isinstance(built, BuiltKernel) else "package"
            table.add_row(built.release, what, seconds, built.manifest["built"], size, str(built.directory))
        console = Console(highlight=False)
        Console(highlight=False, width=None if console.is_terminal else 200).print(table)


@app.command(epilog="Example: forktail kernel clean")
def clean() -> None:
    """Remove every kernel and work tree from the cache, and say how much that freed."""
    with told_clearly():
        freed = cache.clean()
        print(f"Freed {freed / 2**30:.1f} GiB in {cache.cache_directory()}.")

# SPDX-License-Identifier: Apache-2.0
"""Whether the series compiles after each of its patches: every C file that any of them touches, in every flavour; and
whether what these objects want of one another is there, as the linker would ask.

    .venv/bin/python tests/kernel/each_patch_compiles.py [DIRECTORY [CONFIGS]]

It unpacks the kernel's source into the directory, or a temporary one, which takes 2 GiB, and an hour of one CPU.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from forktail.kernel.progress import Silence
from forktail.kernel.series import read_series
from forktail.kernel.source import find_source


def _run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(str(word) for word in command)}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout + done.stderr


def _compiled(tree: Path, name: str, config: str) -> bool:
    """Whether a C file is there, and the configuration asks for it."""
    path = tree / name
    if not path.exists():
        return False
    makefile = (path.parent / "Makefile").read_text()
    option = re.search(rf"^obj-\$\((\w+)\)\s*\+=.*\b{path.stem}\.o", makefile, re.MULTILINE)
    return option is None or f"{option[1]}=y\n" in config


def _symbols(build: Path, objects: list[str]) -> tuple[set[str], set[str]]:
    """The global symbols that objects define, and those that they want."""
    defined: set[str] = set()
    wanted: set[str] = set()
    for line in _run("nm", "--extern-only", "--no-sort", *objects, cwd=build).splitlines():
        if match := re.fullmatch(r"(?:[0-9a-f]+)? *([A-Za-z]) (\S+)", line.strip()):
            (wanted if match[1] == "U" else defined).add(match[2])
    return defined, wanted


def _check_links(found: list[tuple[str, set[str], set[str]]]) -> None:
    """Of one flavour, after each patch: no object wants what only a later patch defines."""
    introduced = set().union(*(defined for _, defined, _ in found)) - found[0][1]
    for when, defined, wanted in found:
        if missing := wanted & introduced - defined:
            sys.exit(f"{when}, nothing defines {', '.join(sorted(missing))}.")


def check(directory: Path, configs: Path | None = None) -> None:
    series = read_series(configs)
    source = find_source(series, None, Silence())
    tree = directory / "linux"
    if tree.exists():
        sys.exit(f"{tree} is there already, with whatever was applied to it: remove it, or give another directory.")
    tree.mkdir(parents=True)
    _run("tar", "-xf", source.path, "--strip-components=1", cwd=tree)
    symbols: dict[str, list[tuple[str, set[str], set[str]]]] = {flavour: [] for flavour in series.flavours}
    for number, patch in enumerate([None, *series.patches]):
        if patch:
            _run("patch", "-p1", "-s", "-i", patch, cwd=tree)
        for flavour in series.flavours:
            build = directory / flavour
            build.mkdir(exist_ok=True)
            parts = [tree / series.defconfig, *series.fragments(flavour)]
            (build / ".config").write_text("\n".join(part.read_text() for part in parts))
            make = ("make", "-s", f"O={build}", f"-j{len(os.sched_getaffinity(0))}", "KCFLAGS=-Werror", "CC=ccache gcc")
            _run(*make, "olddefconfig", "prepare", cwd=tree)
            config = (build / ".config").read_text()
            sources = [name for name in sorted(series.touched) if name.endswith(".c")]
            objects = [name[:-1] + "o" for name in sources if _compiled(tree, name, config)]
            _run(*make, *objects, cwd=tree)
            when = f"after {number} of {len(series.patches)}"
            symbols[flavour].append((f"{when}, {flavour}", *_symbols(build, objects)))
            print(f"{when}: {len(objects)} objects of {flavour}", flush=True)
    for found in symbols.values():
        _check_links(found)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        check(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve() if len(sys.argv) > 2 else None)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            check(Path(temporary))

# SPDX-License-Identifier: Apache-2.0
"""Kconfig options: what a fragment wants, and what a configuration has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from forktail.errors import BadInput

_OFF = "n"
_LINE = re.compile(r"^(?:(CONFIG_\w+)=(.*)|# (CONFIG_\w+) is not set)$", re.MULTILINE)


def read_options(path: Path) -> list[tuple[str, str]]:
    """Every option that a file sets, in its order, with its value; `n` for one that is not set."""
    return [(match[1] or match[3], match[2] or _OFF) for match in _LINE.finditer(path.read_text())]


def check_survived(fragments: Iterable[Path], config: Path) -> None:
    """BadInput that names each option of the fragments which Kconfig gave another value."""
    wanted = {name: (value, path) for path in fragments for name, value in read_options(path)}
    got = dict(read_options(config))
    dropped = [
        f"{name}={value} of {path.name} became {got.get(name, _OFF)}"
        for name, (value, path) in wanted.items()
        if got.get(name, _OFF) != value
    ]
    if dropped:
        raise BadInput(
            f"Kconfig does not accept {'; '.join(dropped)}: an option is unknown, or one it needs is not set."
        )

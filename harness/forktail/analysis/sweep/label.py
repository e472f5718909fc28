# SPDX-License-Identifier: Apache-2.0
"""What the cells of a sweep are called in tables and figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from forktail import flavour as mechanism
from forktail.analysis.mechanism import DEFAULT, UNKNOWN, threads_text
from forktail.analysis.quantity import size_text

Cell = dict[str, Any]

_IN_THE_FORK = ("server.size", "snapshot.copy_threads")
"""What a cell's size and its fork tell already."""


def fork_label(cell: Cell) -> str:
    """The kernel, and the threads that copy after fork where there are any, as in "async-fork, 4 threads"."""
    threads = cell["copy_threads"]
    if flavour(cell) == UNKNOWN:
        return f"{cell['arm']} (unknown fork mechanism)"
    return str(cell["arm"]) if threads is None else f"{cell['arm']}, {threads_text(threads)}"


def fork_labels(cells: Sequence[Cell]) -> list[str]:
    """The forks in the order of the plan."""
    return list(dict.fromkeys(fork_label(cell) for cell in cells))


def settings(cell: Cell) -> dict[str, Any]:
    """What the sweep varies besides kernel, threads and size."""
    return {key: value for key, value in cell["values"].items() if key not in _IN_THE_FORK}


def group_label(cell: Cell) -> str:
    """What a cell is besides its fork: its size and whatever else the sweep varies."""
    return ", ".join([size_text(cell["size_bytes"]), *(f"{key} {value}" for key, value in settings(cell).items())])


def group_labels(cells: Sequence[Cell]) -> list[str]:
    """The groups in the order of the plan."""
    return list(dict.fromkeys(group_label(cell) for cell in cells))


def flavour(cell: Cell) -> str:
    """The kernel's mechanism: its own name in the lab, else what its runs recorded; `unknown` where these differ."""
    if cell["kernel"] in mechanism.KNOWN:
        return str(cell["kernel"])
    # A sweep.json of an older version has no flavours.
    found = set(cell.get("flavours") or map(mechanism.flavour_of_release, cell["releases"]))
    return str(found.pop()) if len(found) == 1 else UNKNOWN if found else DEFAULT


def again(cell: Cell) -> bool:
    """Whether the cell measures its kernel a second time, for the noise floor."""
    return bool(cell["arm"] != cell["kernel"])

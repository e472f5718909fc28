# SPDX-License-Identifier: Apache-2.0
"""The sweep on a terminal: kernels side by side."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from forktail.analysis.quantity import count_text, range_text, time_text
from forktail.analysis.sweep.cells import Sweep
from forktail.analysis.sweep.label import fork_label, group_label

_COLUMNS = (
    ("fork", "fork_us"),
    ("page-table copy", "page_table_copy_us"),
    ("normal p99", "normal.p99_us"),
    ("snapshot p99", "snapshot.p99_us"),
    ("snapshot max", "snapshot.max_us"),
    ("out of service", "out_of_service_us"),
)
_ABOVE_FLOOR = ("above floor", "fork_above_floor_us")
_COPY_AFTER_FORK = ("copied after fork", "copy_us")
_PLAIN_WIDTH = 200


def print_sweep(sweep: Sweep) -> None:
    """Print the table of cells, their interruption histograms, and what went wrong."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH)
    mark = f", EMULATED: {sweep.emulation}" if sweep.emulated else ""
    console.print(f"{sweep.document['name']}: mean of valid runs, minimum to maximum below{mark}")
    if sweep.closed_loop_text:
        console.print(sweep.closed_loop_text, style="red", soft_wrap=True)
    columns = list(_COLUMNS)
    if any(cell["fork_above_floor_us"]["mean"] is not None for cell in sweep.cells):
        columns.insert(1, _ABOVE_FLOOR)
    if any(cell["copy_us"]["mean"] is not None for cell in sweep.cells):
        columns.insert([title for title, _ in columns].index("normal p99"), _COPY_AFTER_FORK)
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("kernel", no_wrap=True)
    table.add_column("size")
    table.add_column("valid", justify="right")
    for title, _ in columns:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("interruptions", justify="right")
    for cell in sweep.cells:
        spreads = [cell[metric] for _, metric in columns]
        table.add_row(
            fork_label(cell),
            group_label(cell),
            f"{cell['valid_runs']} of {cell['runs']}",
            *(_mean(spread) for spread in spreads),
            "-" if cell["interruptions"]["mean"] is None else count_text(round(cell["interruptions"]["mean"])),
        )
        table.add_row("", "", "", *(_range(spread) for spread in spreads), "", style="dim")
    console.print(table)
    for cell in sweep.cells:
        if cell["buckets"]:
            buckets = ", ".join(f"{b['low_us']}-{b['high_us']} µs: {b['count']:,.0f}" for b in cell["buckets"])
            console.print(f"interruptions a run, {fork_label(cell)}, {group_label(cell)}: {buckets}")
    for run in sweep.document["runs"]:
        for reason in run["reasons"]:
            console.print(f"not valid: {run['name']}: {reason}", style="red", soft_wrap=True)
        if run["state"] == "missing":
            console.print(f"missing: {run['name']}: call the same command again to make it", style="red")


def _mean(spread: dict[str, Any]) -> str:
    return "-" if spread["mean"] is None else time_text(spread["mean"] * 1000)


def _range(spread: dict[str, Any]) -> str:
    if spread["mean"] is None:
        return ""
    return range_text(spread["min"] * 1000, spread["max"] * 1000)

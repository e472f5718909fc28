# SPDX-License-Identifier: Apache-2.0
"""The sweep on a terminal: the answer first, then a column for each kernel, then how they differ. 80 columns do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from forktail.analysis.quantity import count_text, range_text, significant, time_text
from forktail.analysis.sweep.answer import NAMES, more_runs
from forktail.analysis.sweep.cells import Sweep
from forktail.analysis.sweep.label import Cell, fork_label, group_label, group_labels

_PLAIN_WIDTH = 80
_LABEL_WIDTH, _COLUMN_WIDTH = 17, 15
"""Characters of the first column and of each kernel's with the gap beside it: four kernels fit into 80."""


def _microseconds(value: float) -> str:
    return time_text(value * 1000)


def _range_of_microseconds(low: float, high: float) -> str:
    return range_text(low * 1000, high * 1000).replace(" to ", "-")


def _counts(low: float, high: float) -> str:
    return f"{count_text(round(low))}-{count_text(round(high))}" if round(low) != round(high) else ""


_TIME = (_microseconds, _range_of_microseconds)
_COUNT = (lambda value: count_text(round(value)), _counts)

_ROWS: tuple[tuple[str, str, tuple[Callable[[float], str], Callable[[float, float], str]]], ...] = (
    ("fork", "fork_us", _TIME),
    ("above floor", "fork_above_floor_us", _TIME),
    ("page-table copy", "page_table_copy_us", _TIME),
    ("copied after fork", "copy_us", _TIME),
    ("normal p99", "normal.p99_us", _TIME),
    ("snapshot p99", "snapshot.p99_us", _TIME),
    ("snapshot max", "snapshot.max_us", _TIME),
    ("out of service", "out_of_service_us", _TIME),
    ("interruptions", "interruptions", _COUNT),
)
_ONLY_WHERE_MEASURED = ("fork_above_floor_us", "copy_us")


def print_sweep(sweep: Sweep) -> None:
    """Print the answer, a table for each setting, how the kernels differ, and what went wrong."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH)
    if sweep.answer:
        console.print(Text(sweep.answer, style="bold"))
        console.print()
    mark = f", EMULATED: {sweep.emulation}" if sweep.emulated else ""
    console.print(f"{sweep.document['name']}: mean of valid runs, minimum to maximum below{mark}", soft_wrap=True)
    if sweep.closed_loop_text:
        console.print(sweep.closed_loop_text, style="red", soft_wrap=True)
    rows = [row for row in _ROWS if row[1] not in _ONLY_WHERE_MEASURED or _measured(sweep.cells, row[1])]
    fitting = max(1, (console.width - _LABEL_WIDTH) // _COLUMN_WIDTH)
    for group in group_labels(sweep.cells):
        cells = [cell for cell in sweep.cells if group_label(cell) == group]
        for first in range(0, len(cells), fitting):
            console.print()
            console.print(_table(group, cells[first : first + fitting], rows))
    for note in missing_figures(sweep.cells):
        console.print(note, soft_wrap=True)
    if sweep.contrasts:
        console.print()
        console.print(_differences(sweep))
        console.print(_how_judged(sweep.contrasts), style="dim")
    _print_buckets(console, sweep.cells)
    for run in sweep.document["runs"]:
        for reason in run["reasons"]:
            console.print(f"not valid: {run['name']}: {reason}", style="red", soft_wrap=True)
        if run["state"] == "missing":
            console.print(
                f"missing: {run['name']}: call the same command again to make it", style="red", soft_wrap=True
            )


def _measured(cells: Sequence[Cell], metric: str) -> bool:
    return any(cell[metric]["mean"] is not None for cell in cells)


def _table(group: str, cells: Sequence[Cell], rows: Sequence[Any]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    table.add_column(group, no_wrap=False, min_width=_LABEL_WIDTH - 1)
    for cell in cells:
        table.add_column(_header(cell), justify="right", min_width=_COLUMN_WIDTH - 1)
    table.add_row("valid runs", *(f"{cell['valid_runs']} of {cell['runs']}" for cell in cells))
    for title, metric, (one, both) in rows:
        spreads = [cell[metric] for cell in cells]
        table.add_row(title, *("-" if spread["mean"] is None else one(spread["mean"]) for spread in spreads))
        ranges = ["" if spread["mean"] is None else both(spread["min"], spread["max"]) for spread in spreads]
        if any(ranges):
            table.add_row("", *ranges, style="dim")
    return table


def _header(cell: Cell) -> str:
    """The fork's label, in two lines where it is long."""
    label = fork_label(cell)
    return label if len(label) < _COLUMN_WIDTH else label.replace(", ", ",\n").replace(" (", "\n(")


def missing_figures(cells: Sequence[Cell]) -> list[str]:
    """Why a figure is missing, and how many runs a mean is of where some have none; a sentence each."""
    notes = []
    for cell in cells:
        for title, metric, _ in _ROWS:
            spread = cell[metric]
            reasons = "; ".join(spread.get("withheld") or [])
            if reasons:
                share = f"is of {spread['runs']} of" if spread["runs"] else "has none of"
                notes.append(
                    f"{title} of {fork_label(cell)}, {group_label(cell)}, {share} {cell['valid_runs']} valid runs: "
                    f"{reasons}"
                )
    return list(dict.fromkeys(notes))


def _differences(sweep: Sweep) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    several = len(group_labels(sweep.cells)) > 1
    for title, right in (("metric", False), ("from", False), ("to", False), ("ratio", True), ("interval", True)):
        table.add_column(title, justify="right" if right else "left", no_wrap=right)
    table.add_column("verdict")
    group = None
    for one in sweep.contrasts:
        if several and one["group"] != group:
            group = one["group"]
            table.add_row(group, style="dim")
        if one["ratio"] is not None:
            table.add_row(
                NAMES[one["metric"]],
                one["old"].replace(" thread", " thr."),
                one["new"].replace(" thread", " thr."),
                f"{one['ratio']:.3g}",
                f"{one['low']:.3g} to {one['high']:.3g}",
                _verdict(one),
            )
    return table


def _verdict(one: dict[str, Any]) -> str:
    return f"{one['verdict']}: {more_runs(one['more_runs'])}" if one["more_runs"] else str(one["verdict"])


def _how_judged(contrasts: Sequence[dict[str, Any]]) -> str:
    levels = sorted({one["confidence"] for one in contrasts if one["confidence"] is not None})
    floors = {
        NAMES[one["metric"]]: significant(one["noise_floor"]) for one in contrasts if one["noise_floor"] is not None
    }
    level = " to ".join(f"{100 * level:.3g}" for level in ([levels[0], levels[-1]] if len(levels) > 1 else levels))
    text = f"Exact rank-sum intervals of {level} % over runs." if levels else "No pair of kernels has a figure."
    if floors and len({one["group"] for one in contrasts}) == 1:
        text += (
            " Noise floor, one kernel against itself: " + ", ".join(f"{name} {r}" for name, r in floors.items()) + "."
        )
    return text


def _print_buckets(console: Console, cells: Sequence[Cell]) -> None:
    for cell in cells:
        if cell["buckets"]:
            buckets = ", ".join(f"{b['low_us']}-{b['high_us']} µs: {b['count']:,.0f}" for b in cell["buckets"])
            label = f"{fork_label(cell)}, {group_label(cell)}"
            console.print(f"interruptions a run, {label}: {buckets}", soft_wrap=True)

# SPDX-License-Identifier: Apache-2.0
"""The figures of a sweep: kernels side by side, each a mean with the spread of its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from forktail.analysis.quantity import count_text, time_text
from forktail.analysis.style import styled, titled
from forktail.analysis.sweep.cells import Sweep
from forktail.analysis.sweep.label import fork_label, fork_labels, group_label, group_labels

# Okabe and Ito's palette; a kernel measured again has its own colour, paler, and so has one that copies with fewer
# threads.
_COLOURS = {"default": "#D55E00", "odf": "#0072B2", "async-fork": "#009E73", "local": "#D55E00"}
_UNKNOWN = "#666666"
_CROWD = 4
"""More forks than these want the room beside the title, and beside each other."""
_PALEST = 0.6
"""The share of white in the palest colour."""
_BAR_WIDTH = 0.8

Draw = Callable[[Sweep], Figure]


def _subtitle(sweep: Sweep) -> str:
    document = sweep.document
    mark = "  ·  EMULATED: ratios hold, absolute times do not" if sweep.emulated else ""
    return f"{document['name']}  ·  mean of {document['repeat']} runs, lines from minimum to maximum{mark}"


def _spreads(axes: Axes, sweep: Sweep, metric: str, label: str, text: Callable[[float], str]) -> None:
    groups = group_labels(sweep.cells)
    names = fork_labels(sweep.cells)
    colours = _colours(sweep.cells)
    width = _BAR_WIDTH / len(names)
    for place, name in enumerate(names):
        for cell in sweep.cells:
            spread = cell[metric]
            if fork_label(cell) != name or spread["mean"] is None:
                continue
            x = groups.index(group_label(cell)) + (place - (len(names) - 1) / 2) * width
            mean = spread["mean"]
            above = len(names) <= _CROWD or place % 2 == 0
            # Points and not bars: on a logarithmic axis a bar's length says nothing.
            axes.errorbar(
                x,
                mean,
                yerr=[[mean - spread["min"]], [spread["max"] - mean]],
                fmt="o",
                markersize=9,
                color=colours[name],
                linewidth=2,
                capsize=4,
                label=name,
            )
            axes.annotate(
                text(mean),
                (x, spread["max" if above else "min"]),
                xytext=(0, 6 if above else -15),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
    axes.set_xticks(range(len(groups)), groups)
    axes.set_xlim(-0.5, len(groups) - 0.5)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel(label)


def _colours(cells: Sequence[dict[str, Any]]) -> dict[str, str]:
    """A colour for each fork: a kernel's own for its most threads, paler for fewer, palest where it comes again."""
    colours = {}
    for cell in cells:
        rivals = {other["copy_threads"] for other in cells if other["arm"] == cell["arm"]} - {None}
        more = len([threads for threads in rivals if threads > cell["copy_threads"]])
        white = _PALEST if cell["arm"] != cell["kernel"] else _PALEST * more / len(rivals) if rivals else 0.0
        colours[fork_label(cell)] = _paler(_COLOURS.get(cell["kernel"], _UNKNOWN), white)
    return colours


def _paler(colour: str, white: float) -> str:
    red, green, blue = to_rgb(colour)
    return to_hex((red + (1 - red) * white, green + (1 - green) * white, blue + (1 - blue) * white))


def _legend(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    unique = dict(zip(labels, handles, strict=True))
    crowded = len(unique) > _CROWD
    figure.legend(
        unique.values(),
        unique.keys(),
        loc="outside lower center" if crowded else "outside upper right",
        ncols=len(unique),
    )


def _log_times(axes: Axes) -> None:
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: time_text(value * 1000)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    low, high = axes.get_ylim()
    # Whole decades, so that an axis always bears two labels and small differences look small.
    axes.set_ylim(10 ** np.floor(np.log10(low)), 10 ** np.ceil(np.log10(high * 1.3)))


def _pair(sweep: Sweep, title: str, metrics: Sequence[tuple[str, str]]) -> Figure:
    figure = titled(title, _subtitle(sweep), 4.6)
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    for axes, (metric, label) in zip(panels, metrics, strict=True):
        _spreads(axes, sweep, metric, label, lambda value: time_text(value * 1000))
        _log_times(axes)
    _legend(figure, panels[0])
    return figure


@styled
def tail(sweep: Sweep) -> Figure:
    """p99 and maximum of snapshot queries (the manner of P, Figures 4, 5, 9 and 10)."""
    return _pair(
        sweep,
        "Tail latency of snapshot queries",
        [("snapshot.p99_us", "p99 of snapshot queries"), ("snapshot.max_us", "maximum of snapshot queries")],
    )


@styled
def fork(sweep: Sweep) -> Figure:
    """How long fork takes, how much of it is the page-table copy, and how long the child copies after it.

    P, Figures 3 and 15a; B, Figure 13.
    """
    metrics = [("fork_us", "fork"), ("page_table_copy_us", "page-table copy inside fork")]
    if any(cell["copy_us"]["mean"] is not None for cell in sweep.cells):
        metrics.append(("copy_us", "until the child has its page tables"))
    return _pair(sweep, "Fork in the server", metrics)


@styled
def interruptions(sweep: Sweep) -> Figure:
    """Interruptions after fork in bcc's buckets, a line of bars a cell (P, Figure 11)."""
    figure = titled("Interruptions of the server after fork", _subtitle(sweep), 4.2)
    axes = figure.subplots()
    cells = [cell for cell in sweep.cells if cell["buckets"]]
    bounds = sorted({(bucket["low_us"], bucket["high_us"]) for cell in cells for bucket in cell["buckets"]})
    if not cells:
        axes.text(0.5, 0.5, "No interruption was seen on any kernel.", ha="center", va="center")
        axes.set_axis_off()
        return figure
    width = _BAR_WIDTH / len(cells)
    colours = _colours(sweep.cells)
    for place, cell in enumerate(cells):
        counts = {(bucket["low_us"], bucket["high_us"]): bucket["count"] for bucket in cell["buckets"]}
        x = np.arange(len(bounds)) + (place - (len(cells) - 1) / 2) * width
        heights = [counts.get(bound, 0) for bound in bounds]
        total = count_text(round(sum(heights)))
        label = f"{fork_label(cell)}, {group_label(cell)}: {total} a run"
        axes.bar(x, heights, width * 0.92, color=colours[fork_label(cell)], edgecolor="white", label=label)
    axes.set_xticks(range(len(bounds)), [f"{low} to {high}" for low, high in bounds])
    axes.set_xlabel("duration, µs")
    axes.set_ylabel("interruptions a run")
    axes.grid(visible=False, axis="x")
    axes.legend()
    return figure


FIGURES: dict[str, Draw] = {"tail": tail, "fork": fork, "interruptions": interruptions}
"""By the names of their files."""

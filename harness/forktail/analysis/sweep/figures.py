# SPDX-License-Identifier: Apache-2.0
"""The figures of a sweep: kernels side by side, each a mean with the spread of its runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from forktail.analysis.quantity import count_text, time_text
from forktail.analysis.style import say, styled, titled
from forktail.analysis.sweep.axes import CROWD, HATCHES, colours, legend, log_times, subtitle
from forktail.analysis.sweep.cells import Sweep
from forktail.analysis.sweep.label import fork_label, fork_labels, group_label, group_labels

_BAR_WIDTH = 0.8
_WIDEST_PART = 20
"""Characters in a line of a label."""

Draw = Callable[[Sweep], Figure]


def _spreads(axes: Axes, sweep: Sweep, metric: str, label: str, text: Callable[[float], str]) -> None:
    groups = group_labels(sweep.cells)
    names = fork_labels(sweep.cells)
    kernel_colours = colours(sweep.cells)
    width = _BAR_WIDTH / len(names)
    for place, name in enumerate(names):
        for cell in sweep.cells:
            spread = cell[metric]
            if fork_label(cell) != name or spread["mean"] is None:
                continue
            x = groups.index(group_label(cell)) + (place - (len(names) - 1) / 2) * width
            mean = spread["mean"]
            above = len(names) * len(groups) <= CROWD or place % 2 == 0
            # Points and not bars: on a logarithmic axis a bar's length says nothing.
            axes.errorbar(
                x,
                mean,
                yerr=[[mean - spread["min"]], [spread["max"] - mean]],
                fmt="o",
                markersize=9,
                color=kernel_colours[name],
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
                path_effects=[withStroke(linewidth=3, foreground="white")],
            )
    axes.set_xticks(range(len(groups)), [_narrow(group) for group in groups])
    axes.set_xlim(-0.5, len(groups) - 0.5)
    axes.grid(visible=False, axis="x")
    axes.set_ylabel(label)


def _narrow(group: str) -> str:
    """A group's label with a line for each of its parts, and two for a long one: labels stand side by side."""
    parts = group.split(", ")
    return "\n".join(part if len(part) <= _WIDEST_PART else part.replace(" ", "\n") for part in parts)


def _pair(sweep: Sweep, title: str, metrics: Sequence[tuple[str, str]]) -> Figure:
    figure = titled(title, subtitle(sweep), 4.6)
    panels = figure.subplots(1, len(metrics), squeeze=False)[0]
    for axes, (metric, label) in zip(panels, metrics, strict=True):
        if all(cell[metric]["mean"] is None for cell in sweep.cells):
            say(axes, f"No valid run tells the {label}.")
            continue
        _spreads(axes, sweep, metric, label, lambda value: time_text(value * 1000))
        log_times(axes)
    told = [panel.get_legend_handles_labels() for panel in panels]
    legend(figure, {label: handle for handles, labels in told for handle, label in zip(handles, labels, strict=True)})
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
    figure = titled("Interruptions of the server after fork", subtitle(sweep), 4.2)
    axes = figure.subplots()
    cells = [cell for cell in sweep.cells if cell["buckets"]]
    bounds = sorted({(bucket["low_us"], bucket["high_us"]) for cell in cells for bucket in cell["buckets"]})
    if not cells:
        measured = any(cell["valid_runs"] for cell in sweep.cells)
        say(axes, "No interruption was seen on any kernel." if measured else "No valid run tells interruptions.")
        return figure
    width = _BAR_WIDTH / len(cells)
    kernel_colours = colours(sweep.cells)
    hatches = dict(zip(group_labels(cells), cycle(HATCHES), strict=False))
    for place, cell in enumerate(cells):
        counts = {(bucket["low_us"], bucket["high_us"]): bucket["count"] for bucket in cell["buckets"]}
        x = np.arange(len(bounds)) + (place - (len(cells) - 1) / 2) * width
        heights = [counts.get(bound, 0) for bound in bounds]
        total = count_text(round(sum(heights)))
        axes.bar(
            x,
            heights,
            width * 0.92,
            color=kernel_colours[fork_label(cell)],
            edgecolor="white",
            hatch=hatches[group_label(cell)],
            label=f"{fork_label(cell)}, {group_label(cell)}: {total} a run",
        )
    axes.set_xticks(range(len(bounds)), [f"{low} to {high}" for low, high in bounds])
    axes.set_xlabel("duration, µs")
    axes.set_ylabel("interruptions a run")
    axes.grid(visible=False, axis="x")
    axes.legend()
    return figure


FIGURES: dict[str, Draw] = {"tail": tail, "fork": fork, "interruptions": interruptions}
"""By the names of their files."""

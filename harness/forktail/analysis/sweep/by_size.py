# SPDX-License-Identifier: Apache-2.0
"""The papers' figures over the size of the data: this sweep on the left, what the paper says in numbers on the right.

Both panels have the same axes where the sweep ran on a real machine. Times of an emulated sweep have an axis of their
own: they are not to be read beside the paper's, only ratios and counts are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from forktail.analysis.mechanism import ASYNC_FORK, DEFAULT, ODF
from forktail.analysis.papers import GIB, Number, read_papers
from forktail.analysis.quantity import count_text, share_text, size_text, time_text
from forktail.analysis.style import say, styled, titled
from forktail.analysis.sweep.axes import HATCHES, KERNEL_COLOURS, colours, legend, log_times, paler, subtitle
from forktail.analysis.sweep.cells import Sweep
from forktail.analysis.sweep.figures import Draw
from forktail.analysis.sweep.label import Cell, again, flavour, fork_label, settings

_HEIGHT = 4.6
_DODGE = 0.07
"""How far apart points of one size stand, the distance between two sizes being 1."""
_ROOMY = 4
"""Up to so many sizes there is room outside the outermost ones."""
LEFT, RIGHT, WITHIN = "left", "right", "within"
_FURTHER = [
    (0.0, 13.0),
    (0.0, -13.0),
    *((x, y) for y in (22.0, -22.0, 31.0, -31.0, 40.0, -40.0) for x in (-9.0, 9.0, 0.0)),
]
_CORNERS = [(-8.0, 9.0), (8.0, -9.0), (8.0, 9.0), (-8.0, -9.0)]
_PLACES = {
    LEFT: [(-11.0, 0.0), (-11.0, 11.0), (-11.0, -11.0), *_FURTHER],
    RIGHT: [(11.0, 0.0), (11.0, 11.0), (11.0, -11.0), *_FURTHER],
    WITHIN: [*_CORNERS, *_FURTHER],
}
"""Points to the right and up at which a text may stand, the first one that is free being the best."""
_TEXTS = 18
"""More points than these are not told in numbers: the texts would be in each other's way."""
_PAPER_SIZES = [2**power * GIB for power in range(7)]
"""What the papers measured: 1 to 64 GB (P, section 6.1)."""
_MARKERS = {"redis": "D", "keydb": "s"}
_OWN_MARKERS = ("o", "^", "v", "P")
"""Of points that differ in something else than the kernel, which has the colour."""
_BOUNDS = {"stated": "", "about": "~ ", "below": "< ", "above": "> ", "up to": "≤ "}
_PAPER = "P (PVLDB 2023)"
_BLOG = "B (blog of Alibaba Cloud)"
_NOTHING = "This sweep has no valid run\nof the kernels of this figure."

Series = dict[str, list[Cell]]
Legend = dict[str, Any]


@dataclass(frozen=True)
class _Text:
    """What stands beside a point."""

    size: int
    value: float
    text: str
    colour: str
    place: str
    """LEFT, RIGHT or WITHIN: where in its line the point is, and so what is free of the line."""


@dataclass
class _Panel:
    """One panel: sizes at even distances, as the papers draw them, and what is told beside its points."""

    axes: Axes
    sizes: list[int]
    texts: list[_Text] = field(default_factory=list)
    spread: float = 0
    """How far the outermost points of a size are from its place."""

    def at(self, size: int, dodge: float = 0) -> float:
        return self.sizes.index(size) + dodge

    def finish(self) -> None:
        self.axes.set_xticks(range(len(self.sizes)), [size_text(size) for size in self.sizes])
        # Outside the ends of a line there must be room for a text.
        margin = 0.75 if 1 < len(self.sizes) <= _ROOMY else 0.5 if len(self.sizes) > 1 else 1
        self.axes.set_xlim(-margin, len(self.sizes) - 1 + margin)
        self.axes.grid(visible=False, axis="x")
        self.axes.set_xlabel("data")
        log_times(self.axes)

    def tell(self) -> None:
        """Put each text where it lies on no line and on no other text; the figure must be complete but for these."""
        figure = self.axes.get_figure(root=True)
        assert figure is not None
        figure.draw_without_rendering()  # Only then are the places of axes and lines known.
        lines = [line.get_path().transformed(line.get_transform()) for line in self.axes.lines]
        placed: list[Bbox] = []
        for text in sorted(self.texts, key=lambda one: (one.size, one.value)):
            tried = []
            for place in _PLACES[text.place]:
                drawn = self._drawn(text, *place)
                box = drawn.get_window_extent()
                hits = sum(line.intersects_bbox(box, filled=False) for line in lines) + box.count_overlaps(placed)
                drawn.remove()
                tried.append((hits, place, box))
                if not hits:
                    break
            _, place, box = min(tried, key=lambda one: one[0])
            self._drawn(text, *place)
            placed.append(box)

    def _drawn(self, text: _Text, right: float, up: float) -> Annotation:
        """The text so many points from its point, or where it is to a side, from all points of its size."""
        side = (right > 0) - (right < 0)
        return self.axes.annotate(
            text.text,
            (self.at(text.size, side * self.spread), text.value),
            xytext=(right, up),
            textcoords="offset points",
            ha=("right", "center", "left")[side + 1],
            va="center",
            fontsize=8,
            color=text.colour,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )


@styled
def figure_3(sweep: Sweep) -> Figure:
    """How long the default fork takes, and the part of it that copies page tables (P, Figure 3)."""
    series = _series(sweep, [DEFAULT])
    figure, own, paper = _panels(sweep, series, "Default fork by size", _PAPER)
    entries = _lines(own, sweep, series, "fork_us", _copying)
    _lines(own, sweep, series, "page_table_copy_us", dashed=True)
    papers = read_papers()
    shares = {
        number.size: f"\n{_BOUNDS[number.how]}{100 * number.value:g} % copying"
        for number in papers.numbers("page_table_copy_share", [DEFAULT])
    }
    _quote(paper, papers.numbers("fork_us", [DEFAULT]), lambda number: shares.get(number.size, ""))
    _quote(paper, papers.numbers("page_table_copy_us", [DEFAULT]), lambda _: ", copying alone")
    entries["copying page tables"] = Line2D([], [], color="#666666", linestyle="--")
    return _finished(figure, sweep, own, paper, "fork", entries)


@styled
def figure_4(sweep: Sweep) -> Figure:
    """p99 of normal and of snapshot queries, by default and on-demand fork (P, Figure 4)."""
    return _tail(sweep, "p99 of normal and snapshot queries by size", "p99", [DEFAULT, ODF], normal=True)


@styled
def figure_5(sweep: Sweep) -> Figure:
    """The slowest normal and the slowest snapshot query, by default and on-demand fork (P, Figure 5)."""
    return _tail(sweep, "Slowest normal and snapshot query by size", "max", [DEFAULT, ODF], normal=True)


@styled
def figure_9(sweep: Sweep) -> Figure:
    """p99 of snapshot queries, by on-demand fork and Async-fork (P, Figure 9; B, Figure 6)."""
    return _tail(sweep, "p99 of snapshot queries by size", "p99", [ODF, ASYNC_FORK])


@styled
def figure_10(sweep: Sweep) -> Figure:
    """The slowest snapshot query, by on-demand fork and Async-fork (P, Figure 10; B, Figure 7)."""
    return _tail(sweep, "Slowest snapshot query by size", "max", [ODF, ASYNC_FORK])


@styled
def figure_11(sweep: Sweep) -> Figure:
    """How often the server is interrupted after fork, in bcc's buckets (P, Figure 11; B, Figure 8)."""
    series = _series(sweep, [ODF, ASYNC_FORK])
    title, source = "Interruptions of the server after fork", f"{_PAPER}: all of them of 16 to 63 µs"
    figure, own, paper = _panels(sweep, series, title, source)
    bounds = sorted(
        {(b["low_us"], b["high_us"]) for cells in series.values() for cell in cells for b in cell["buckets"]}
    )
    shades = {bound: 0.75 * place / max(2, len(bounds) - 1) for place, bound in enumerate(bounds)}
    entries: Legend = {}
    groups = _groups(series)
    width = 0.8 / max(1, len(series))
    for place, (name, cells) in enumerate(series.items()):
        colour = colours(sweep.cells)[fork_label(cells[0])]
        hatch = HATCHES[groups[name] % len(HATCHES)]
        entries[name] = Patch(facecolor=colour, edgecolor="white", hatch=hatch)
        for cell in cells:
            x = own.at(cell["size_bytes"], (place - (len(series) - 1) / 2) * width)
            _stack(own.axes, cell, x, width, colour, shades, hatch)
    if len(bounds) > 1:
        entries[f"paler: longer, {bounds[0][0]} to {bounds[-1][1]} µs"] = Patch(color="#BBBBBB")
    own.axes.set_xticks(range(len(own.sizes)), [size_text(size) for size in own.sizes])
    own.axes.set_xlabel("data")
    own.axes.set_ylabel("interruptions a run")
    if not series:
        say(own.axes, _NOTHING)
    numbers = sorted(read_papers().numbers("interruptions", [ODF, ASYNC_FORK]), key=lambda number: -number.value)
    for place, number in enumerate(numbers):
        bar = paper.axes.bar(place, number.value, 0.6, color=KERNEL_COLOURS[number.kernel])
        paper.axes.bar_label(bar, [count_text(number.value)], fontsize=8, padding=2)
    paper.axes.set_xticks(range(len(numbers)), [f"{n.kernel}, {size_text(n.size_bytes)}" for n in numbers])
    for axes in (own.axes, paper.axes):
        axes.grid(visible=False, axis="x")
        axes.margins(y=0.1)
    legend(figure, entries)
    return figure


@styled
def blog_13(sweep: Sweep) -> Figure:
    """When fork returns to the server, by each of the kernels (B, Figure 13)."""
    kernels = [DEFAULT, ODF, ASYNC_FORK]
    series = _series(sweep, kernels)
    figure, own, paper = _panels(sweep, series, "Return of fork by size", _BLOG)
    entries = _lines(own, sweep, series, "fork_us")
    _quote(paper, read_papers().numbers("fork_us", kernels, ["B"]))
    return _finished(figure, sweep, own, paper, "fork", entries)


BY_SIZE: dict[str, Draw] = {
    "figure-03": figure_3,
    "figure-04": figure_4,
    "figure-05": figure_5,
    "figure-09": figure_9,
    "figure-10": figure_10,
    "figure-11": figure_11,
    "blog-13": blog_13,
}
"""By the names of their files."""


def _tail(sweep: Sweep, title: str, quantile: str, kernels: Sequence[str], normal: bool = False) -> Figure:
    series = _series(sweep, kernels)
    figure, own, paper = _panels(sweep, series, title, _PAPER)
    entries = _lines(own, sweep, series, f"snapshot.{quantile}_us")
    if normal:
        _lines(own, sweep, series, f"normal.{quantile}_us", dashed=True)
        entries["normal queries"] = Line2D([], [], color="#666666", linestyle="--")
    numbers = read_papers().numbers(f"snapshot.{quantile}_us", kernels)
    # The paper's figures of normal queries are of Redis, the others of KeyDB too.
    _quote(paper, [number for number in numbers if number.engine == "redis" or not normal])
    return _finished(figure, sweep, own, paper, "p99" if quantile == "p99" else "slowest", entries)


def _panels(sweep: Sweep, series: Series, title: str, source: str) -> tuple[Figure, _Panel, _Panel]:
    figure = titled(title, subtitle(sweep), _HEIGHT)
    own, paper = figure.subplots(1, 2)
    own.set_title("This sweep, EMULATED" if sweep.emulated else "This sweep")
    paper.set_title(source)
    if sweep.emulated:
        own.text(
            0.5,
            0.5,
            "EMULATED",
            transform=own.transAxes,
            ha="center",
            va="center",
            rotation=25,
            fontsize=34,
            fontweight="bold",
            color="#F0F0F0",
            zorder=0,
        )
    sizes = sorted({int(cell["size_bytes"]) for cells in series.values() for cell in cells})
    if sweep.emulated or not sizes:
        return figure, _Panel(own, sizes), _Panel(paper, _PAPER_SIZES)
    both = sorted({*sizes, *_PAPER_SIZES})
    return figure, _Panel(own, both), _Panel(paper, both)


def _series(sweep: Sweep, kernels: Sequence[str]) -> Series:
    """The cells with a valid run by what they are besides their size, in the order of the kernels and of the sizes."""
    engines = {cell["engine"] for cell in sweep.cells}
    series: Series = {}
    shown = [cell for cell in sweep.cells if flavour(cell) in kernels and cell["valid_runs"]]
    shown.sort(key=lambda cell: (kernels.index(flavour(cell)), again(cell), cell["size_bytes"]))
    for cell in shown:
        told = [fork_label(cell), *(f"{key} {value}" for key, value in settings(cell).items())]
        told += [cell["engine"]] * (len(engines) > 1 and "server.engine" not in settings(cell))
        series.setdefault(", ".join(told), []).append(cell)
    return series


def _groups(series: Series) -> dict[str, int]:
    """For each of the series, which of the settings of one kernel it has."""
    told = {name: tuple(settings(cells[0]).items()) for name, cells in series.items()}
    places = list(dict.fromkeys(told.values()))
    return {name: places.index(setting) for name, setting in told.items()}


def _lines(
    panel: _Panel,
    sweep: Sweep,
    series: Series,
    metric: str,
    more: Callable[[Cell], str] = lambda _: "",
    dashed: bool = False,
) -> Legend:
    """A line for each series, at each size from the lowest run to the highest; returns its part of the legend.

    The mean is told beside each point of a line that is not dashed, with what `more` has to say of its cell.
    """
    entries: Legend = {}
    panel.spread = (len(series) - 1) / 2 * _DODGE
    told = not dashed and sum(len(cells) for cells in series.values()) <= _TEXTS
    groups = _groups(series)
    for place, (name, cells) in enumerate(series.items()):
        marker = _OWN_MARKERS[groups[name] % len(_OWN_MARKERS)]
        measured = [cell for cell in cells if cell[metric]["mean"] is not None]
        means = [cell[metric]["mean"] for cell in measured]
        lows = [cell[metric]["mean"] - cell[metric]["min"] for cell in measured]
        highs = [cell[metric]["max"] - cell[metric]["mean"] for cell in measured]
        colour = colours(sweep.cells)[fork_label(cells[0])]
        panel.axes.errorbar(
            [panel.at(cell["size_bytes"], place * _DODGE - panel.spread) for cell in measured],
            means,
            yerr=[lows, highs],
            fmt=f"{marker}--" if dashed else f"{marker}-",
            markersize=5 if dashed else 7,
            markerfacecolor="white" if dashed else colour,
            color=colour,
            linewidth=1.0 if dashed else 1.6,
            capsize=3,
        )
        if told:
            texts = [time_text(mean * 1000) + more(cell) for mean, cell in zip(means, measured, strict=True)]
            sizes = [int(cell["size_bytes"]) for cell in measured]
            for at, (size, mean, text) in enumerate(zip(sizes, means, texts, strict=True)):
                within = RIGHT if at == len(means) - 1 else LEFT if at == 0 else WITHIN
                panel.texts.append(_Text(size, mean, text, colour, within))
        entries[name] = Line2D([], [], color=colour, marker=marker)
    return entries


def _copying(cell: Cell) -> str:
    whole, part = cell["fork_us"]["mean"], cell["page_table_copy_us"]["mean"]
    return f"\n{share_text(part / whole)} copying" if whole and part is not None else ""


def _stack(
    axes: Axes, cell: Cell, x: float, width: float, colour: str, shades: dict[tuple[int, int], float], hatch: str
) -> None:
    bottom = 0.0
    for bucket in cell["buckets"]:
        shade = paler(colour, shades[bucket["low_us"], bucket["high_us"]])
        axes.bar(x, bucket["count"], 0.9 * width, bottom, color=shade, edgecolor="white", linewidth=0, hatch=hatch)
        bottom += bucket["count"]
    axes.annotate(count_text(bottom), (x, bottom), xytext=(0, 3), textcoords="offset points", ha="center", fontsize=8)


def _quote(panel: _Panel, numbers: Sequence[Number], more: Callable[[Number], str] = lambda _: "") -> None:
    """A hollow mark for each number of a paper, with the number and what `more` has to say of it."""
    for number in numbers:
        colour, mark = KERNEL_COLOURS[number.kernel], _MARKERS[number.engine]
        panel.axes.plot(
            panel.at(number.size_bytes), number.value, mark, color=colour, markersize=7, markerfacecolor="white"
        )
        engine = "" if number.engine == "redis" else f", {number.engine}"
        text = _BOUNDS[number.how] + time_text(number.value * 1000) + engine + more(number)
        side = LEFT if len(panel.sizes) > 1 and number.size_bytes == panel.sizes[-1] else RIGHT
        panel.texts.append(_Text(number.size_bytes, number.value, text, colour, side))


def _finished(figure: Figure, sweep: Sweep, own: _Panel, paper: _Panel, label: str, entries: Legend) -> Figure:
    """Axes, texts and legend; the same bounds for both panels where their times may be compared."""
    own.axes.set_ylabel(label)
    drawn = [own, paper] if own.axes.containers else [paper]
    for panel in drawn:
        panel.finish()
    if len(drawn) == 1:
        say(own.axes, _NOTHING)
    elif not sweep.emulated:
        bounds = own.axes.get_ylim() + paper.axes.get_ylim()
        for panel in drawn:
            panel.axes.set_ylim(min(bounds), max(bounds))
    legend(figure, entries)
    for panel in drawn:
        panel.tell()
    return figure

# SPDX-License-Identifier: Apache-2.0
"""The figures of a run, each a function from the result to a matplotlib Figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from forktail.analysis.attribute import PARTS
from forktail.analysis.classify import AMBIGUOUS, ARMED, CLASSES, NORMAL, SNAPSHOT, WARMUP
from forktail.analysis.closedload import ClosedLoad
from forktail.analysis.episode import slow_until
from forktail.analysis.mechanism import DEFAULT, fork_text, mechanism_name, terms
from forktail.analysis.quantity import count_text, size_text, time_text
from forktail.analysis.querylog import OK
from forktail.analysis.result import BANDS, Result
from forktail.analysis.run import number, section
from forktail.analysis.statistics import PERCENTS, log2_histogram, rank
from forktail.analysis.style import say, styled, titled
from forktail.analysis.window import Snapshot

Int64 = npt.NDArray[np.int64]

# Okabe and Ito's palette, told apart by colour-blind readers too.
COLOURS = {NORMAL: "#0072B2", SNAPSHOT: "#D55E00", WARMUP: "#999999", AMBIGUOUS: "#CC79A7", ARMED: "#56B4E9"}
_PART_COLOURS = {
    "client_lag": "#000000",
    "behind_client_lag": "#777777",
    "fork": "#D55E00",
    "behind_fork": "#F2B48C",
    "interruption": "#CC79A7",
    "behind_interruption": "#EBCBDB",
    "cow_fault": "#009E73",
    "behind_cow_fault": "#99D8C7",
    "run_queue": "#0072B2",
    "behind_run_queue": "#99C7E0",
    "blocked": "#E69F00",
    "behind_blocked": "#F5D899",
    "service": "#BBBBBB",
    "unexplained": "#FFFFFF",
}
_PART_NAMES = {
    "client_lag": "generator late",
    "behind_client_lag": "queueing behind late queries",
    "fork": "fork",
    "behind_fork": "queueing behind fork",
    "cow_fault": "copy-on-write fault",
    "behind_cow_fault": "queueing behind faults",
    "run_queue": "waiting for a CPU",
    "behind_run_queue": "queueing behind waits for a CPU",
    "blocked": "blocked (disk, kernel lock)",
    "behind_blocked": "queueing behind blocking",
    "service": "service",
    "unexplained": "unexplained",
}
_WINDOW, _FORK, _FLIGHT = "#FBF3D0", "#B9B4A5", "#CFE6D2"
_DOTS = 2000
_ZOOM_DOTS = 20_000

Draw = Callable[[Result], Figure]


def part_names(result: Result) -> dict[str, str]:
    """The parts of a latency as this run's mechanism has them."""
    own = terms(result.run)
    return _PART_NAMES | {"interruption": own.one, "behind_interruption": own.behind}


def _setting(result: Result) -> str:
    """What was measured, for a title: kernel, size, load."""
    run = result.run
    kernel = f"{fork_text(run)}, Linux {run.kernel.get('release') or 'unknown'}"
    store = f"{run.server.get('engine') or 'server'} {run.server.get('version') or ''}".strip()
    payload = number(run.server, "payload_bytes")
    size = f", {size_text(payload)}" if payload else ""
    mark = f"  ·  EMULATED: {run.emulation}" if run.emulation else ""
    return f"{kernel}  ·  {store}{size}  ·  {run.load_text}{mark}"


def _figure(result: Result, title: str, height: float) -> Figure:
    return titled(title, _setting(result), height)


def _log_axis(axes: Axes) -> None:
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    # Tenfold steps alone would leave a short axis with one label or none.
    steps = (1.0,) if high / low > 1000 else (1.0, 2.0, 5.0)
    axes.yaxis.set_major_locator(LogLocator(subs=steps, numticks=20))
    _time_axis(axes)


def _time_axis(axes: Axes) -> None:
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: time_text(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _pieces(result: Result) -> Iterator[slice]:
    """Consecutive queries of one class each, at most some hundred pieces over the run."""
    times, classes = result.run.queries.intended_ns, result.classes
    bins = int(np.clip(len(times) // 200, 20, 400))
    edges = np.searchsorted(times, np.linspace(times[0], times[-1], bins + 1)[1:-1].astype(np.int64))
    changes = np.flatnonzero(np.diff(classes)) + 1
    cuts = np.unique(np.concatenate(([0], edges, changes, [len(times)])))
    for first, behind in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        yield slice(first, behind)


def _shade(axes: Axes, fork: Snapshot, to_axis: Callable[[int], float]) -> None:
    edges = [to_axis(ns) for ns in (fork.start_ns, fork.fork_end_ns, fork.end_ns)]
    axes.axvspan(edges[1], edges[2], color=_WINDOW, lw=0, label="window", zorder=0)
    axes.axvspan(edges[0], edges[1], color=_FORK, lw=1, label="fork", zorder=0)


@styled
def latency_over_time(result: Result) -> Figure:
    """Latency by arrival over the whole run, and query by query around the first fork."""
    if result.run.closed is not None:
        return _intervals_over_time(result, result.run.closed)
    height = 7.6 if result.snapshots else 4.6
    figure = _figure(result, "Latency by time of arrival", height)
    panels = figure.subplots(2 if result.snapshots else 1, 1, squeeze=False)[:, 0]
    if len(result.run.queries):
        _overview(panels[0], result)
        if result.snapshots:
            _zoom(panels[1], result, result.snapshots[0])
    return figure


def _intervals_over_time(result: Result, closed: ClosedLoad) -> Figure:
    """The slowest answer of each interval, and its p99 where there is one: all that a closed loop tells."""
    figure = _figure(result, f"What {closed.generator} tells of each interval", 4.6)
    axes = figure.subplots()
    origin = int(closed.starts_ns[0]) if len(closed.starts_ns) else result.run.marks.load_start_ns
    for fork in result.snapshots:
        _shade(axes, fork, lambda ns: (ns - origin) / 1e9)
    rows = np.arange(len(closed.counts))
    for name in (WARMUP, NORMAL, SNAPSHOT):
        for row in np.flatnonzero((result.interval_classes == name) & (closed.counts > 0)):
            start, end = ((int(ns) - origin) / 1e9 for ns in (closed.starts_ns[row], closed.ends_ns[row]))
            axes.hlines(closed.max_us[row] * 1000, start, end, color=COLOURS[name], lw=2)
            p99 = closed.latency_us(rows == row)["p99"]
            if p99 is not None:
                axes.hlines(p99 * 1000, start, end, color=COLOURS[name], lw=1, ls=":")
    _log_axis(axes)
    axes.set_xlabel("answered, seconds since the load began")
    axes.set_ylabel("latency by the generator's clock")
    present = [name for name in (NORMAL, SNAPSHOT, WARMUP) if (result.interval_classes == name).any()]
    handles: list[Line2D | Patch] = [Patch(color=COLOURS[name], label=_class_name(name)) for name in present]
    handles.append(Line2D([], [], color="#444444", lw=2, label="slowest of an interval"))
    if closed.points is not None:
        handles.append(Line2D([], [], color="#444444", lw=1, ls=":", label="p99 of an interval"))
    handles += [Patch(color=_FORK, label="fork"), Patch(color=_WINDOW, label="window")] if result.snapshots else []
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(handles), columnspacing=1.1,
                handlelength=1.4, borderaxespad=0.1)  # fmt: skip
    return figure


def _untold(figure: Figure, text: str) -> Figure:
    say(figure.subplots(), text)
    return figure


def _overview(axes: Axes, result: Result) -> None:
    queries = result.run.queries
    origin = int(queries.intended_ns[0])
    ok = queries.status == OK
    medians, tails, slowest = [], [], []
    for piece in _pieces(result):
        latencies = queries.latency_ns[piece][ok[piece]]
        if not len(latencies):
            continue
        slowest.append(piece.start + int(np.where(ok[piece], queries.latency_ns[piece], -1).argmax()))
        ranks = [rank(len(latencies), percent) - 1 for percent in ("50", "99")]
        parted = np.partition(latencies, ranks)
        middle = (int(queries.intended_ns[piece.start]) + int(queries.intended_ns[piece.stop - 1])) / 2
        point = ((middle - origin) / 1e9, result.classes[piece.start])
        medians.append((*point, int(parted[ranks[0]])))
        tails.append((*point, int(parted[ranks[1]])))
    _class_lines(axes, medians, 0.9, "--")
    _class_lines(axes, tails, 1.5, "-")
    _slow_dots(axes, result, origin, np.array(slowest, dtype=np.int64))
    for fork in result.snapshots:
        _shade(axes, fork, lambda ns: (ns - origin) / 1e9)
    _log_axis(axes)
    axes.set_xlim(0, (int(queries.intended_ns[-1]) - origin) / 1e9)
    axes.set_xlabel("arrival, seconds since the load began")
    axes.set_ylabel("latency")
    present = [name for name in (NORMAL, SNAPSHOT, WARMUP, AMBIGUOUS, ARMED) if (result.classes == name).any()]
    handles: list[Line2D | Patch] = [Patch(color=COLOURS[name], label=_class_name(name)) for name in present]
    handles += [
        Line2D([], [], color="#444444", lw=1.5, label="p99"),
        Line2D([], [], color="#444444", lw=0.9, ls="--", label="p50"),
        Line2D([], [], color="#444444", marker=".", ls="", ms=4, label="slowest queries"),
    ]
    if result.snapshots:
        handles.append(Patch(color=_FORK, label="fork"))
        handles.append(Patch(color=_WINDOW, label="window"))
    axes.legend(handles=handles, loc="lower right", bbox_to_anchor=(1, 1), ncols=len(handles), columnspacing=1.1,
                handlelength=1.4, borderaxespad=0.1)  # fmt: skip


def _class_name(name: int) -> str:
    return "warm-up" if name == WARMUP else CLASSES[name]


def _class_lines(axes: Axes, points: list[tuple[float, int, int]], width: float, style: str) -> None:
    """One line a class, broken where another class lies between."""
    classes = np.array([point[1] for point in points])
    cuts = np.flatnonzero(np.diff(classes)) + 1
    for run in np.split(np.arange(len(points)), cuts):
        stretch = [points[index] for index in run]
        axes.plot(
            [point[0] for point in stretch],
            [point[2] for point in stretch],
            color=COLOURS[stretch[0][1]],
            lw=width,
            ls=style,
            zorder=3,
        )


def _slow_dots(axes: Axes, result: Result, origin: int, slowest: Int64) -> None:
    """Dots for the slowest query of each piece and the slowest of each class: no maximum may vanish in a line."""
    queries = result.run.queries
    for name in (NORMAL, SNAPSHOT):
        latencies = result.sorted_ns[name]
        if not len(latencies):
            continue
        floor = latencies[-min(_DOTS, 1 + len(latencies) // 100)]
        of_class = (queries.latency_ns >= floor) & (result.classes == name) & (queries.status == OK)
        chosen = np.union1d(np.flatnonzero(of_class), slowest[result.classes[slowest] == name])
        axes.plot(
            (queries.intended_ns[chosen] - origin) / 1e9,
            queries.latency_ns[chosen],
            ".",
            ms=3,
            color=COLOURS[name],
            alpha=0.6,
            mew=0,
            zorder=2,
            label=f"slowest {CLASSES[name]}",
        )


def _zoom(axes: Axes, result: Result, fork: Snapshot) -> None:
    queries = result.run.queries
    flight = fork.flight if fork.flight and fork.flight.child else None
    around = max(fork.fork_ns, flight.duration_ns if flight else 0, 500_000)
    until = _slow_until(result, fork, around)
    around = max(around, (until - fork.start_ns) // 8)
    begin, end = fork.start_ns - around, max(fork.fork_end_ns + 3 * around, until + around)
    rows = np.arange(*np.searchsorted(queries.intended_ns, [begin, end]))
    rows = rows[queries.status[rows] == OK]
    if len(rows) > _ZOOM_DOTS:
        slow = rows[np.argpartition(queries.latency_ns[rows], -_ZOOM_DOTS // 4)[-_ZOOM_DOTS // 4 :]]
        rows = np.union1d(rows[:: len(rows) // _ZOOM_DOTS + 1], slow)
    _shade(axes, fork, lambda ns: (ns - fork.start_ns) / 1e6)
    if flight:
        edges = [(ns - fork.start_ns) / 1e6 for ns in (fork.fork_end_ns, flight.end_ns)]
        axes.axvspan(*edges, color=_FLIGHT, lw=0, zorder=0)
    for name in (NORMAL, WARMUP, SNAPSHOT, AMBIGUOUS, ARMED):
        chosen = rows[result.classes[rows] == name]
        axes.plot(
            (queries.intended_ns[chosen] - fork.start_ns) / 1e6,
            queries.latency_ns[chosen],
            ".",
            ms=4,
            mew=0,
            alpha=0.8,
            color=COLOURS[name],
        )
    axes.set_xlim((begin - fork.start_ns) / 1e6, (end - fork.start_ns) / 1e6)
    axes.set_ylim(bottom=0)
    _time_axis(axes)
    axes.set_xlabel("arrival, milliseconds since the entry of fork")
    axes.set_ylabel("latency")
    copying = f", copying after it until {time_text(flight.end_ns - fork.start_ns)}, green" if flight else ""
    axes.set_title(
        f"Around the fork ({time_text(fork.fork_ns)}, dark{copying}): each dot is one query, on a linear scale"
    )


def _slow_until(result: Result, fork: Snapshot, least_ns: int) -> int:
    """When the last query of the slow episode after the fork arrived, ns."""
    queries = result.run.queries
    ok = queries.status == OK
    normal = result.sorted_ns[NORMAL]
    usual = int(normal[rank(len(normal), "99") - 1]) if len(normal) else 0
    arrivals, latencies = queries.intended_ns[ok], queries.latency_ns[ok]
    return slow_until(arrivals, latencies, fork.start_ns, fork.end_ns, usual, least_ns)


@styled
def percentile_curves(result: Result) -> Figure:
    """Latency by percentile of both classes; every tenfold step to the right is one more nine."""
    closed = result.run.closed
    if closed is not None and closed.points is None:
        text = f"{closed.generator} tells the percentiles of the whole run alone:\nno class has any."
        return _untold(_figure(result, "Latency by percentile", 2.0), text)
    figure = _figure(result, "Latency by percentile", 4.8)
    axes = figure.subplots()
    if closed is not None:
        return _known_percentiles(figure, axes, result, closed)
    longest = 1
    for name in (NORMAL, SNAPSHOT):
        latencies = result.sorted_ns[name]
        count = len(latencies)
        if not count:
            continue
        longest = max(longest, count)
        # At least `slower` queries took this long or longer; with one left it is the maximum.
        slower = np.unique(np.geomspace(1, count, 500).round().astype(np.int64))[::-1]
        axes.plot(
            count / slower,
            latencies[count - slower],
            color=COLOURS[name],
            lw=1.8,
            drawstyle="steps-post",
            label=f"{CLASSES[name]} ({_queries(count)})",
        )
        axes.plot(count, latencies[-1], "o", color=COLOURS[name], ms=5)
        slowest = result.lag_effects[name]["max"]
        whose = f"max {time_text(slowest.figure_ns)}" + ", not the server's" * slowest.withheld
        # A curve only rises, so that what is written above its end is clear of it; the other one may pass behind.
        axes.annotate(
            whose,
            (count, latencies[-1]),
            textcoords="offset points",
            xytext=(5, 6),
            ha="right",
            color=COLOURS[name],
            fontsize=9,
            path_effects=[withStroke(linewidth=3, foreground="white")],
        )
    axes.set_xscale("log")
    axes.margins(y=0.12)
    _log_axis(axes)
    ticks = [1, 2, 10, 100, 1_000, 10_000, 100_000, 1_000_000]
    names = ["min", "50", "90", "99", "99.9", "99.99", "99.999", "99.9999"]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: dict(zip(ticks, names, strict=True)).get(value, "")))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(1, max(longest, 10) * 1.4)
    axes.set_xlabel("percentile of the class's queries")
    axes.set_ylabel("latency")
    if axes.lines:
        axes.legend(loc="upper left")
    return figure


def _known_percentiles(figure: Figure, axes: Axes, result: Result, closed: ClosedLoad) -> Figure:
    """The percentiles that a closed loop's histograms tell of both classes."""
    names = [*PERCENTS, "max"]
    for name in (NORMAL, SNAPSHOT):
        told = closed.latency_us(result.interval_classes == name)
        shown = [(place, told[key]) for place, key in enumerate(names) if told[key] is not None]
        axes.plot(
            [place for place, _ in shown],
            [(value or 0.0) * 1000 for _, value in shown],
            "o-",
            color=COLOURS[name],
            lw=1.5,
            label=CLASSES[name],
        )
    _log_axis(axes)
    axes.set_xticks(range(len(names)), [*PERCENTS.values(), "max"])
    axes.set_xlabel("percentile of the class's queries")
    axes.set_ylabel("latency by the generator's clock")
    axes.set_title(f"Known {closed.percentiles_are}", fontsize=9)
    axes.legend(loc="upper left")
    return figure


@styled
def interruption_histogram(result: Result) -> Figure:
    """The parent's page-table copies outside fork by duration, in bcc's log2 microsecond buckets (P, figure 11)."""
    buckets = log2_histogram(result.interruptions["duration"].astype(np.int64))
    figure = _figure(result, "Interruptions of the server by duration", 4.2 if buckets else 2.0)
    axes = figure.subplots()
    if not buckets:
        say(axes, no_interruptions(result))
        return figure
    counts = [bucket["count"] for bucket in buckets]
    bars = axes.bar(range(len(buckets)), counts, color=_PART_COLOURS["interruption"], width=0.8)
    axes.bar_label(bars, [count_text(count) if count else "" for count in counts], fontsize=9, padding=2)
    axes.set_xticks(range(len(buckets)), [f"{bucket['low_us']}-{bucket['high_us']}" for bucket in buckets])
    axes.grid(visible=False, axis="x")
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("duration, µs")
    axes.set_ylabel("interruptions")
    probe = section(section(result.run.probe, "probes"), "interruption")
    label = f" ({probe['label']})" if probe.get("label") else ""
    total = time_text(int(result.interruptions["duration"].sum()))
    axes.set_title(f"{count_text(sum(counts))} interruptions, {total} in all; probe: {probe.get('probe')}{label}")
    return figure


def no_interruptions(result: Result) -> str:
    """Why there is no interruption to show."""
    probe = section(section(result.run.probe, "probes"), "interruption").get("probe")
    if not probe:
        return "Interruptions were not measured:\nno probe for them could be attached on this kernel."
    if mechanism_name(result.run) == DEFAULT:
        return (
            "No interruption was seen, and none is expected:\n"
            "the default fork copies every page table inside fork itself."
        )
    return f"No interruption was seen by the probe {probe},\nalthough this kernel copies page tables after fork."


@styled
def attribution_bars(result: Result) -> Figure:
    """What snapshot queries waited for, by band of latency."""
    if result.run.closed is not None:
        text = f"{result.run.closed.generator} keeps no record of single queries:\nnothing tells what they waited for."
        return _untold(_figure(result, "What snapshot queries waited for", 2.0), text)
    figure = _figure(result, "What snapshot queries waited for", 4.4)
    axes = figure.subplots()
    tail = result.tail
    if tail is None:
        say(axes, "No snapshot query was answered.")
        return figure
    lows, highs = ("0", *BANDS), (*BANDS, "100")
    shown = [index for index in range(len(lows)) if tail.queries[index]]
    places = np.arange(len(shown))
    totals = tail.parts_ns[shown].sum(axis=1)
    left = np.zeros(len(shown))
    legend = []
    order = sorted(PARTS, key=list(_PART_COLOURS).index)
    names = part_names(result)
    for part in order:
        widths = 100 * tail.parts_ns[shown, PARTS.index(part)] / np.maximum(totals, 1)
        bars = axes.barh(
            places,
            widths,
            left=left,
            color=_PART_COLOURS[part],
            edgecolor="#888888",
            linewidth=0.4,
            height=0.7,
        )
        if part == "unexplained":
            for bar in bars:
                bar.set_hatch("////")
        left += widths
        if widths.max() >= 0.2:
            bars.set_label(names[part])
            legend.append(bars)
    axes.set_yticks(
        places,
        [
            f"p{lows[index]} to p{highs[index]}" if index < len(lows) - 1 else f"slowest {_remainder(lows[index])} %"
            for index in shown
        ],
    )
    for place, index, total in zip(places, shown, totals, strict=True):
        mean = time_text(int(total) / int(tail.queries[index]))
        axes.text(
            101,
            float(place),
            f"mean {mean}\n{_queries(int(tail.queries[index]))}",
            va="center",
            fontsize=8,
        )
    axes.set_xlim(0, 100)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("share of the latency of snapshot queries in the band, %")
    figure.legend(handles=legend, loc="outside lower center", ncols=4)
    return figure


def _queries(count: int) -> str:
    return f"{count_text(count)} {'query' if count == 1 else 'queries'}"


def _remainder(percent: str) -> str:
    return f"{100 - float(percent):.3g}"


FIGURES: dict[str, Draw] = {
    "latency": latency_over_time,
    "percentiles": percentile_curves,
    "attribution": attribution_bars,
    "interruptions": interruption_histogram,
}
"""The figures of a report in its order, by the stem of their file names."""

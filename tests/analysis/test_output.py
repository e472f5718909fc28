# SPDX-License-Identifier: Apache-2.0
"""What an analysis leaves in the run directory: summary, data set, figures, report."""

from __future__ import annotations

import hashlib
import html
import io
import json
import re
import struct
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.path import Path as Path2D
from matplotlib.text import Text
from rich.console import Console
from tests.analysis.synthetic import FAULT, INTERRUPTION, MS, NEVER, ORIGIN, RUN_QUEUE, Event, Query, RunDirectory

from forktail.analysis import Summary, analyse
from forktail.analysis.eventlog import FAULT_PAGE_PRESENT, FAULT_PRESENCE_KNOWN
from forktail.analysis.figures import FIGURES
from forktail.analysis.quantity import time_text
from forktail.analysis.result import Result, derive
from forktail.analysis.run import read_run
from forktail.analysis.table import print_summary

KEYS = [
    "schema", "valid", "reasons", "warnings", "answer", "kernel.flavour", "kernel.release", "engine.name",
    "size.payload_bytes", "fork.duration_us", "fork.page_table_copy_us", "fork.page_table_copy_share",
    "info.latest_fork_usec", "window.start_ns", "window.end_ns", "window.duration_ms", "window.truncated", "snapshots",
    "queries.normal.count", "queries.normal.p50_us", "queries.normal.p99_us", "queries.normal.p999_us",
    "queries.normal.max_us", "queries.snapshot.count", "queries.snapshot.p50_us", "queries.snapshot.p99_us",
    "queries.snapshot.p999_us", "queries.snapshot.max_us", "queries.warmup.count", "interruptions.count",
    "interruptions.total_us", "interruptions.buckets", "out_of_service_us", "out_of_service.fork_us",
    "out_of_service.interruptions_us", "load.intended", "load.sent", "load.completed", "load.errors", "load.unsent",
    "load.lost", "load.in_flight", "load.lag_p50_us", "load.lag_p99_us", "load.lag_p999_us", "events.seen",
    "events.emitted", "events.dropped", "probes.fork", "server.version", "attribution.share", "attribution.dominant",
    "attribution.slowest",
]  # fmt: skip


def _run() -> RunDirectory:
    begin = RunDirectory.fork_start + 20 * MS
    return RunDirectory.whole(
        extra_events=[
            *(Event(INTERRUPTION, begin + index * MS, 20_000 + 10_000 * (index % 3)) for index in range(9)),
            Event(INTERRUPTION, RunDirectory.window_end + MS, 20_000),
            Event(INTERRUPTION, begin, 20_000, tgid=9),
            Event(INTERRUPTION, RunDirectory.fork_start + MS, 20_000),
            Event(FAULT, begin + 100 * MS, 3_000, aux=FAULT_PRESENCE_KNOWN | FAULT_PAGE_PRESENT),
            Event(FAULT, begin + 200 * MS, 2_000, aux=FAULT_PRESENCE_KNOWN),
        ]
    )


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Summary]:
    path = _run().write(tmp_path_factory.mktemp("analysis") / "run")
    return path, analyse(path)


@pytest.mark.parametrize(
    ("aux", "copies", "words"),
    [
        (FAULT_PRESENCE_KNOWN | FAULT_PAGE_PRESENT, 1, "1 (1 copy-on-write), 3 µs in all"),
        (FAULT_PRESENCE_KNOWN, 0, "1 (0 copy-on-write), 3 µs in all"),
        (0, None, "1 (the probe did not see which were copy-on-write), 3 µs in all"),
    ],
)
def test_faults_are_called_copies_where_that_is_known(aux: int, copies: int | None, words: str, tmp_path: Path) -> None:
    fault = Event(FAULT, RunDirectory.fork_start + 20 * MS, 3_000, aux=aux)
    run = RunDirectory.whole(extra_events=[fault]).write(tmp_path / "run")
    assert analyse(run).document["faults"] == {"count": 1, "copy_on_write": copies, "total_us": 3}
    assert words in (run / "report.html").read_text()


def _digests(run: Path, *names: str) -> dict[str, str]:
    return {name: hashlib.sha256((run / name).read_bytes()).hexdigest() for name in names}


def test_the_summary_has_its_keys_and_is_what_was_written(analysed: tuple[Path, Summary]) -> None:
    run, summary = analysed
    document = json.loads((run / "summary.json").read_text())
    assert document == summary.document
    assert document["schema"] == "forktail.summary/1"
    for key in KEYS:
        value = document
        for part in key.split("."):
            assert part in value, key
            value = value[part]
        assert value is not None, key


def test_the_numbers_are_those_of_the_run_made_by_hand(analysed: tuple[Path, Summary]) -> None:
    _, summary = analysed
    document = summary.document
    assert summary.valid, summary.reasons
    assert document["fork"]["duration_us"] == 10_000
    assert document["fork"]["page_table_copy_share"] == 0.97
    assert document["window"]["duration_ms"] == 1000
    # Nine within the window, after the fork, by the server: three each of 20, 30 and 40 us.
    assert document["interruptions"]["count"] == 9
    assert document["interruptions"]["total_us"] == 270
    assert [bucket["count"] for bucket in document["interruptions"]["buckets"]] == [6, 3]
    assert document["out_of_service_us"] == 10_270
    assert document["faults"] == {"count": 2, "copy_on_write": 1, "total_us": 5}
    # The first query of the window waits for the whole fork: 10 ms and its own 100 + (2000 mod 7) us.
    assert document["queries"]["snapshot"]["max_us"] == 10_105
    assert document["queries"]["normal"]["max_us"] == 106
    # Every seventh of the 2001 takes 106 us, which is the p99, and the 20 of the fork take longer.
    threshold, tail = document["attribution"]["threshold_us"], document["attribution"]["queries"]
    queries = [query for query in _run().queries if 1000 * MS <= query.intended - ORIGIN <= 2000 * MS]
    assert threshold == 106
    assert tail == sum(query.latency >= 106_000 for query in queries)
    assert sum(document["attribution"]["dominant"].values()) == tail
    slowest = document["attribution"]["slowest"]
    assert len(slowest) == 10
    assert slowest[0]["latency_us"] == 10_105
    assert slowest[0]["parts_us"]["fork"] == 9_995
    assert all(sum(query["parts_us"].values()) == pytest.approx(query["latency_us"]) for query in slowest)
    assert sum(document["attribution"]["share"].values()) == pytest.approx(1, abs=1e-5)
    assert "is fork (10 ms during which the server answered no query)" in document["answer"]


def test_normal_queries_that_the_fork_caught_are_told_apart(tmp_path: Path) -> None:
    directory = RunDirectory.whole()
    # Due 0.5 ms before the fork: one is answered as the fork begins, the other only after it.
    early, caught = directory.queries[1998], directory.queries[1999]
    early.latency = RunDirectory.fork_start - early.intended
    caught.latency = RunDirectory.fork_start + RunDirectory.fork_ns - caught.intended
    normal = analyse(directory.write(tmp_path / "run")).document["queries"]["normal"]
    assert normal["max_us"] == 10_500
    assert (normal["caught_by_fork"], normal["max_of_others_us"]) == (1, 1_000)
    assert "One normal query arrived before a fork" in (tmp_path / "run" / "report.html").read_text()


def test_the_answer_tells_all_causes_worth_telling(tmp_path: Path) -> None:
    fork_end = RunDirectory.fork_start + RunDirectory.fork_ns
    directory = RunDirectory.whole(extra_events=[Event(RUN_QUEUE, fork_end, 10 * MS)])
    for query in directory.queries:
        if RunDirectory.fork_start <= query.intended < fork_end + 10 * MS:
            query.latency = fork_end + 10 * MS - query.intended + 100_000
    answer = analyse(directory.write(tmp_path / "run"), write=False).document["answer"]
    told = re.search(r"queries ([\d.]+) % is waiting for a CPU and ([\d.]+) % is fork \(10 ms during", answer)
    assert told, answer
    # The slowest 1 % are the 21 that arrive in the fork's 10 ms: each waits 10 ms for the CPU, and 5 ms for the fork.
    assert float(told[1]) == pytest.approx(100 * 210 / 315, abs=1)
    assert float(told[2]) == pytest.approx(100 * 105 / 315, abs=1)
    assert "each with the queueing behind it" in answer


@pytest.mark.parametrize(
    ("added", "told"),
    [
        (106, "While the snapshot is taken, p99 rises 2 times, from 106 µs to 212 µs."),
        (10, "The snapshot hardly raises p99: it is 116 µs while it is taken, and 106 µs otherwise."),
        (0, "The snapshot does not raise p99: it is 106 µs while it is taken, and 106 µs otherwise."),
    ],
)
def test_the_answer_says_how_far_p99_rises(tmp_path: Path, added: int, told: str) -> None:
    directory = RunDirectory.whole()
    for query in directory.queries:
        # Those that waited for the fork are 20, the slowest 1 %.
        if 1010 * MS < query.intended - ORIGIN <= 2000 * MS:
            query.latency += added * 1_000
    assert analyse(directory.write(tmp_path / "run"), write=False).document["answer"].startswith(told)


def test_analysing_again_changes_nothing_and_raw_files_stay(tmp_path: Path) -> None:
    run = _run().write(tmp_path / "run")
    raw = sorted(path.name for path in run.iterdir())
    before = _digests(run, *raw)
    analyse(run, write=False)
    assert sorted(path.name for path in run.iterdir()) == raw
    analyse(run)
    derived = sorted({path.name for path in run.iterdir()} - set(raw))
    assert derived == sorted(
        ["summary.json", "report.html", "queries.parquet", "events.parquet", *(f"{name}.png" for name in FIGURES)]
    )
    first = _digests(run, *derived)
    analyse(run)
    assert _digests(run, *derived) == first
    assert _digests(run, *raw) == before


@pytest.mark.parametrize(
    ("lab", "words"),
    [
        (None, None),
        ({"accelerator": "kvm"}, None),
        ({"accelerator": "tcg"}, "ratios hold, absolute times do not"),
        ({"accelerator": "tcg", "icount": True}, "times are instructions"),
    ],
)
def test_emulation_is_told_by_table_report_and_every_picture(
    tmp_path: Path, lab: dict[str, object] | None, words: str | None
) -> None:
    directory = _run()
    directory.environment = directory.environment | {"lab": lab}
    run = directory.write(tmp_path / "run")
    summary = analyse(run)
    assert summary.document["emulation"] == words
    console = Console(file=io.StringIO(), width=200)
    print_summary(summary, console)
    assert isinstance(console.file, io.StringIO)
    told = [console.file.getvalue(), *(_texts(draw(derive(read_run(run)))) for draw in FIGURES.values())]
    assert [f"EMULATED: {words}" in text for text in told] == [words is not None] * len(told)
    assert ("<strong>emulated</strong>" in (run / "report.html").read_text()) == (words is not None)


def test_the_data_set_holds_every_query_and_event(analysed: tuple[Path, Summary]) -> None:
    run, summary = analysed
    table = pq.read_table(run / "queries.parquet")
    assert table.num_rows == 6000
    classes = {row["values"]: row["counts"] for row in pc.value_counts(table["class"]).to_pylist()}
    for name in ("normal", "snapshot", "warmup"):
        assert classes[name] == summary.document["queries"][name]["count"]
    slowest = table.sort_by([("latency_ns", "descending")]).slice(0, 1).to_pylist()[0]
    assert (slowest["latency_ns"], slowest["class"], slowest["cause"]) == (10_105_000, "snapshot", "fork")
    assert table.schema.field("latency_ns").metadata[b"unit"] == b"ns"
    assert table.schema.metadata[b"forktail.clock"] == b"CLOCK_MONOTONIC"
    events = pq.read_table(run / "events.parquet").to_pylist()
    assert len(events) == 19
    assert [event["start_ns"] for event in events] == sorted(event["start_ns"] for event in events)
    assert sum(event["kind"] == "interruption" and event["snapshot"] == 0 for event in events) == 11


def test_a_time_that_never_came_is_null_in_the_data_set(tmp_path: Path) -> None:
    directory = RunDirectory.whole()
    directory.queries[5] = Query(directory.queries[5].intended, NEVER, NEVER, status=4)
    directory.queries[6] = Query(directory.queries[6].intended, NEVER, 7, status=2)
    run = directory.write(tmp_path / "run")
    analyse(run)
    unsent, lost = pq.read_table(run / "queries.parquet").slice(5, 2).to_pylist()
    assert (unsent["lag_ns"], unsent["latency_ns"], unsent["status"], unsent["cause"]) == (None, None, "unsent", None)
    assert (lost["lag_ns"], lost["latency_ns"], lost["status"], lost["cause"]) == (7, None, "lost", None)


def _derived(tmp_path: Path, directory: RunDirectory) -> Result:
    return derive(read_run(directory.write(tmp_path / "run")))


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_pictures(tmp_path: Path, name: str) -> None:
    figure = FIGURES[name](_derived(tmp_path, _run()))
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    content = buffer.getvalue()
    assert content[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", content[16:24])
    assert width > 1000
    assert height > 300
    assert len(content) > 10_000


def _texts(figure: Figure) -> str:
    return " ".join(text.get_text() for text in figure.findobj(match=Text) if isinstance(text, Text))


def _points(line: Line2D) -> list[tuple[float, float]]:
    return list(zip(np.asarray(line.get_xdata()).tolist(), np.asarray(line.get_ydata()).tolist(), strict=True))


def _bars(axes: Axes) -> list[Rectangle]:
    return [patch for patch in axes.patches if isinstance(patch, Rectangle)]


def test_latency_over_time_shows_window_fork_and_the_maximum(tmp_path: Path) -> None:
    result = _derived(tmp_path, _run())
    figure = FIGURES["latency"](result)
    figure.draw_without_rendering()
    overview, zoom = figure.axes
    spans = {patch.get_label(): patch.get_window_extent().width for patch in overview.patches}
    assert spans["window"] > 50 * spans["fork"] > 0
    dots = [y for line in overview.lines if str(line.get_label()).startswith("slowest") for _, y in _points(line)]
    assert max(dots) == 10_105_000
    assert max(y for line in zoom.lines for _, y in _points(line)) == 10_105_000
    assert "default fork, Linux 6.1.0" in _texts(figure)
    assert "512 MiB" in _texts(figure)


def test_a_maximum_survives_among_many_slow_queries(tmp_path: Path) -> None:
    # The fork alone makes up the slowest 1 % of its class; these two are slow only for their time.
    directory = RunDirectory.whole()
    directory.queries[3500].latency, directory.queries[3900].latency = 107_600, 107_500
    overview = FIGURES["latency"](_derived(tmp_path, directory)).axes[0]
    points = {point for line in overview.lines for point in _points(line)}
    assert ((directory.queries[3900].intended - ORIGIN) / 1e9, 107_500) in points


def test_percentile_curves_end_at_the_maxima(tmp_path: Path) -> None:
    axes = FIGURES["percentiles"](_derived(tmp_path, _run())).axes[0]
    curves = {str(line.get_label()).split()[0]: line for line in axes.lines}
    assert _points(curves["snapshot"])[-1] == (2001, 10_105_000)
    assert _points(curves["normal"])[-1] == (3799, 106_000)


@pytest.mark.parametrize("slowest_but_one", [500_000, 600_000, 700_000, 800_000, 900_000])
def test_the_maxima_are_written_clear_of_their_curves(tmp_path: Path, slowest_but_one: int) -> None:
    directory = RunDirectory.whole()
    directory.queries[4500].latency, directory.queries[4900].latency = 996_000, slowest_but_one
    figure = FIGURES["percentiles"](_derived(tmp_path, directory))
    axes = figure.axes[0]
    figure.savefig(io.BytesIO())
    colours = [str(line.get_color()) for line in axes.lines]
    assert len(axes.texts) == 2
    for text in axes.texts:
        curve = axes.lines[colours.index(str(text.get_color()))]
        x, y = axes.transData.transform(np.column_stack(curve.get_data())).T
        # What holds until the next step, and then the step.
        corners = Path2D(np.column_stack([np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]]))
        assert not corners.intersects_bbox(text.get_window_extent(), filled=False), text.get_text()


def test_interruptions_are_drawn_in_buckets_or_their_absence_is_explained(tmp_path: Path) -> None:
    axes = FIGURES["interruptions"](_derived(tmp_path, _run())).axes[0]
    assert [bar.get_height() for bar in _bars(axes)] == [6, 3]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["16-31", "32-63"]
    (tmp_path / "other").mkdir()
    assert "none is expected" in _texts(FIGURES["interruptions"](_derived(tmp_path / "other", RunDirectory.whole())))
    unmeasured = RunDirectory.whole()
    unmeasured.probe["probes"]["interruption"]["probe"] = None
    (tmp_path / "third").mkdir()
    assert "not measured" in _texts(FIGURES["interruptions"](_derived(tmp_path / "third", unmeasured)))


def test_attribution_bars_fill_each_band(tmp_path: Path) -> None:
    axes = FIGURES["attribution"](_derived(tmp_path, _run())).axes[0]
    totals: dict[float, float] = {}
    for bar in _bars(axes):
        totals[bar.get_y()] = totals.get(bar.get_y(), 0) + bar.get_width()
    assert len(totals) >= 3
    assert all(total == pytest.approx(100) for total in totals.values())


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img", "link", "br"):
            self.open.append(tag)
        self.found += [value or "" for name, value in attrs if name in ("src", "href", "srcset", "data")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_needs_nothing_beside_it_and_holds_the_numbers(analysed: tuple[Path, Summary]) -> None:
    run, summary = analysed
    text = (run / "report.html").read_text()
    links = _Links()
    links.feed(text)
    assert not links.open
    assert len(links.found) == len(FIGURES)
    assert all(link.startswith("data:image/png;base64,") for link in links.found)
    assert not re.search(r"https?://|@import|url\(", text)
    document = summary.document
    for name in ("normal", "snapshot"):
        for key in ("p50_us", "p99_us", "p999_us", "max_us"):
            assert time_text(1000 * document["queries"][name][key]) in text
        assert f"{document['queries'][name]['count']:,}" in text
    assert html.escape(document["answer"]) in text
    assert "fexit kernel_clone" in text
    assert "no such function" in text
    assert "&lt;x&amp;y&gt;" in text


def test_an_invalid_run_says_so_first(tmp_path: Path) -> None:
    directory = RunDirectory.whole()
    directory.probe["trailer"]["events"]["dropped"] = 3
    run = directory.write(tmp_path / "run")
    summary = analyse(run)
    text = (run / "report.html").read_text()
    assert text.index("not valid") < text.index(html.escape(summary.reasons[0])) < text.index('class="answer"')
    assert "Every check passed" not in text


@pytest.mark.parametrize("terminal", [True, False])
def test_the_table_suits_terminals_and_files(analysed: tuple[Path, Summary], terminal: bool) -> None:
    _, summary = analysed
    out = io.StringIO()
    print_summary(summary, Console(file=out, force_terminal=terminal, width=80))
    text = out.getvalue()
    assert ("\x1b[" in text) == terminal
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert re.search(r"^snapshot +2,001 +103 µs +106 µs +9.1 ms +10.1 ms", plain, re.MULTILINE)
    assert "by-hand: default fork, Linux 6.1.0, 512 MiB: valid" in plain
    if not terminal:
        assert summary.document["answer"] in plain.splitlines()

# SPDX-License-Identifier: Apache-2.0
"""The comparison on a terminal, and as Markdown for where pull requests and nights are read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from forktail.analysis.compare.comparison import Comparison
from forktail.analysis.compare.conditions import EMULATED, EMULATED_COUNTED
from forktail.analysis.compare.verdict import Verdict
from forktail.analysis.emulation import COUNTED, STRETCHED
from forktail.analysis.quantity import count_text, share_text, time_text

Document = dict[str, Any]

_COLUMNS = ("metric", "BASE", "NEW", "ratio", "interval", "noise", "verdict")
_STYLES = {
    Verdict.PASS: "green",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.INFRASTRUCTURE: "bold magenta",
    Verdict.REGRESS: "bold red",
}
_UNITS = {"_us": 1000, "_ms": 1_000_000}
"""Nanoseconds of a metric's unit, by the end of its name."""
_PLAIN_WIDTH = 200


def print_comparison(comparison: Comparison) -> None:
    """Print the verdict, a table a cell, and all failures and warnings."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH)
    document = comparison.document
    console.print(Text.assemble(*_headline(comparison)), soft_wrap=True)
    for sentence in _sides(document):
        console.print(Text(sentence, style="dim"), soft_wrap=True)
    for failure in document["failures"]:
        console.print(Text(f"failure: {failure}", style="bold magenta"), soft_wrap=True)
    for cell in document["cells"]:
        console.print()
        verdict = Verdict(cell["verdict"])
        console.print(Text.assemble((cell["label"], "bold"), ": ", (verdict, _STYLES[verdict]), _runs(cell)))
        for failure in _own_failures(cell, document):
            console.print(Text(f"failure: {failure}", style="bold magenta"), soft_wrap=True)
        if cell["metrics"]:
            console.print(_table(cell))
        for metric in cell["metrics"]:
            if metric["verdict"] in (Verdict.REGRESS, Verdict.INCONCLUSIVE):
                style = _STYLES[Verdict(metric["verdict"])]
                console.print(Text(f"{metric['metric']}: {_reason(metric)}", style=style), soft_wrap=True)
    if document["warnings"]:
        console.print()
    for warning in document["warnings"]:
        console.print(Text(f"warning: {warning}", style="yellow"), soft_wrap=True)


def markdown(comparison: Comparison) -> str:
    """The comparison as Markdown, with pipe tables as GitHub renders them."""
    document = comparison.document
    more = "".join(part for part in _headline(comparison) if isinstance(part, str) and part.startswith(": "))
    lines = [f"## {comparison.verdict}{more}", "", *(f"{_escaped(sentence)}  " for sentence in _sides(document)), ""]
    lines += [f"- **failure**: {_escaped(failure)}" for failure in document["failures"]]
    lines += [f"- warning: {_escaped(warning)}" for warning in document["warnings"]]
    for cell in document["cells"]:
        lines += ["", f"### {_escaped(cell['label'])}: {cell['verdict']}{_escaped(_runs(cell))}"]
        lines += [""] * bool(_own_failures(cell, document))
        lines += [f"- **failure**: {_escaped(failure)}" for failure in _own_failures(cell, document)]
        if cell["metrics"]:
            lines += ["", _row([*_COLUMNS, "why"]), _row(["---", *["---:"] * 5, "---", "---"])]
            lines += [_row([f"`{metric['metric']}`", *_cells(metric)]) for metric in cell["metrics"]]
    return "\n".join(lines) + "\n"


def _headline(comparison: Comparison) -> Iterator[str | tuple[str, str]]:
    yield (str(comparison.verdict).upper(), _STYLES[comparison.verdict])
    counts = [cell["verdict"] for cell in comparison.document["cells"]]
    told = [f"{counts.count(verdict)} {verdict}" for verdict in reversed(Verdict) if verdict in counts]
    yield f" ({', '.join(told)})" if len(counts) > 1 else ""
    more = [cell["more_runs"] for cell in comparison.document["cells"] if cell["more_runs"]]
    if comparison.verdict == Verdict.INCONCLUSIVE and more:
        yield f": about {count_text(max(more))} more {'run' if max(more) == 1 else 'runs'} of each side"


def _sides(document: Document) -> Iterator[str]:
    for role in ("base", "new"):
        side = document[role]
        kernel = f", {side['kernel']}" if side["kernel"] else ""
        releases = ", ".join(side["releases"]) or "no valid run"
        machines = [machine for machine in side["machines"] if machine in (EMULATED, EMULATED_COUNTED)]
        worth = COUNTED if machines == [EMULATED_COUNTED] else STRETCHED
        mark = f", EMULATED: {worth} ({', '.join(machines)})" if machines else ""
        yield f"{role.upper():<4} {side['directory']}{kernel}: {side['name']}, {releases}{mark}"


def _own_failures(cell: Document, document: Document) -> list[str]:
    return [failure for failure in cell["failures"] if failure not in document["failures"]]


def _runs(cell: Document) -> str:
    base, new = cell["runs"]
    if cell["paired"]:
        return f" ({count_text(base)} pairs of runs, measured in turn)"
    return f" ({count_text(base)} and {count_text(new)} runs)" if base or new else ""


def _table(cell: Document) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in _COLUMNS:
        table.add_column(column, justify="right" if column in _COLUMNS[1:6] else "left", no_wrap=True)
    for metric in cell["metrics"]:
        style = _STYLES[Verdict(metric["verdict"])] if metric["verdict"] else ""
        *numbers, verdict = _texts(metric)
        table.add_row(*numbers, Text(verdict, style=style), style=None if metric["judged"] else "dim")
    return table


def _texts(metric: Document) -> list[str]:
    """A metric's row, a text for each of _COLUMNS."""
    ratio, low, high = metric["ratio"], metric["low"], metric["high"]
    noise = max((share for share in metric["noise"] if share is not None), default=None)
    return [
        metric["metric"],
        _value(metric["metric"], metric["base"]),
        _value(metric["metric"], metric["new"]),
        "-" if ratio is None else f"{ratio:.3g}",
        "-" if low is None else f"{low:.3g} to {high:.3g}",
        "-" if noise is None else share_text(noise),
        metric["verdict"] or "not judged",
    ]


def _reason(metric: Document) -> str:
    wanted = metric["runs_wanted"]
    return (metric["reason"] or "") + (f"; about {count_text(wanted)} runs of each side are needed" if wanted else "")


def _cells(metric: Document) -> list[str]:
    """What stands behind a metric's name in Markdown."""
    return [_escaped(text) for text in (*_texts(metric)[1:], _reason(metric))]


def _value(metric: str, value: float | None) -> str:
    if value is None:
        return "-"
    return next((time_text(value * unit) for end, unit in _UNITS.items() if metric.endswith(end)), count_text(value))


def _row(texts: list[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _escaped(text: str) -> str:
    """Text that Markdown shows as it is, in a table too."""
    for character in "\\|*_<`[":
        text = text.replace(character, f"\\{character}")
    return text.replace("\n", " ")

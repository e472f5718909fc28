# SPDX-License-Identifier: Apache-2.0
"""The summary of a run on a terminal, or as plain lines elsewhere."""

from __future__ import annotations

from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from forktail.analysis.quantity import count_text, share_text, time_text
from forktail.analysis.summary import Summary

_COLUMNS = ("p50_us", "p99_us", "p999_us", "max_us")
_NARROWEST = 72


def print_summary(summary: Summary, console: Console | None = None) -> None:
    """Print verdict, answer and the key numbers; a console that is no terminal gets no colour and no wrapping."""
    console = console or Console()
    for part in _parts(summary.document):
        console.print(part, soft_wrap=not console.is_terminal and not isinstance(part, Table))


def render(summary: Summary) -> RenderableType:
    """The same as one renderable, for a console of the caller's."""
    return Group(*_parts(summary.document))


def _parts(document: dict[str, Any]) -> list[RenderableType]:
    parts: list[RenderableType] = [
        _head(document),
        Text(document["answer"]),
        Text(),
        _latencies(document),
        Text(),
    ]
    parts += [Text(line) for line in _facts(document)]
    parts += [Text(f"invalid: {reason}", style="bold red") for reason in document["reasons"]]
    parts += [Text(f"warning: {warning}", style="yellow") for warning in document["warnings"]]
    return parts


def _head(document: dict[str, Any]) -> Text:
    verdict = Text("valid", style="bold green") if document["valid"] else Text("NOT VALID", style="bold red")
    kernel, size = document["kernel"], document["size"]["text"]
    emulation = document["emulation"]
    return Text.assemble(
        (str(document["name"]), "bold"),
        f": {document['mechanism']['text']}, Linux {kernel['release']}, {size or 'size unknown'}: ",
        verdict,
        f", EMULATED: {emulation}" if emulation else "",
        f", CLOSED LOOP by {document['load']['generator']}" if document["load"]["closed_loop"] else "",
    )


def _latencies(document: dict[str, Any]) -> RenderableType:
    table = Table(box=None, pad_edge=False, header_style="dim", min_width=_NARROWEST)
    table.add_column("class")
    for name in ("queries", "p50", "p99", "p99.9", "max"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, style in (("whole_run", ""), ("normal", "blue"), ("snapshot", "dark_orange3")):
        of_class = document["queries"][name]
        if of_class is None:
            continue
        cells = [_time(of_class[column]) for column in _COLUMNS]
        table.add_row(Text(name.replace("_", " "), style=style), count_text(of_class["count"]), *cells)
    return Padding(table, (0, 0))


def _facts(document: dict[str, Any]) -> list[str]:
    fork, window, interruptions = document["fork"], document["window"], document["interruptions"]
    lines = []
    if fork["duration_us"] is not None:
        copying = fork["page_table_copy_share"]
        copied = f", {share_text(copying)} of it copying page tables" if copying is not None else ""
        lines.append(f"fork            {_time(fork['duration_us'])}{copied}")
        lines += _flight_facts(document["flight"])
        end = ", cut off" if window["truncated"] else ""
        lines.append(f"window          {time_text(window['duration_ms'] * 1e6)}{end}")
        one = ", each of one thread and not in it" if document["out_of_service"]["one_thread_us"] else ""
        lines.append(
            f"out of service  {_time(document['out_of_service_us'])} "
            f"(interruptions{one}: {count_text(interruptions['count'])}, {_time(interruptions['total_us'])})"
        )
    reasons = [
        f"{one['reason']} {count_text(one['count'])} ({_time(one['total_us'])})" for one in interruptions["reasons"]
    ]
    if reasons:
        lines.append(f"  caused by {', '.join(reasons)}")
    lines += [
        f"  {bucket['low_us']:>7,} to {bucket['high_us']:,} µs: {count_text(bucket['count'])}"
        for bucket in interruptions["buckets"]
    ]
    if document["mechanism"]["note"]:
        lines.append(f"mechanism       {document['mechanism']['note']}")
    lines += [f"without effect  {text}" for text in document["without_effect"]]
    lines += _cross_checks(document["info"])
    load, events = document["load"], document["events"]
    if load["closed_loop"]:
        lines += _closed_loop(document)
    else:
        lines += _open_loop(load)
        lines += _client(document)
    lines.append(f"kernel events   {count_text(events['emitted'])}, {count_text(events['dropped'])} lost")
    return lines


def _closed_loop(document: dict[str, Any]) -> list[str]:
    load, queries = document["load"], document["queries"]
    limit = f", at most {count_text(load['rate_wanted'])} wanted" if load["rate_wanted"] else ""
    covered = time_text(queries["snapshot"]["covers_ms"] * 1e6)
    return [
        f"queries         {count_text(load['completed'])} completed, {count_text(load['rate_sent'])} a second{limit}",
        f"classes         of whole intervals, the snapshot's {queries['snapshot']['intervals']} of {covered} in all",
        f"percentiles     {load['percentiles_are']}",
        *(f"note            {note}" for note in load["notes"]),
    ]


def _open_loop(load: dict[str, Any]) -> list[str]:
    lag = f"p50 {_time(load['lag_p50_us'])}, p99 {_time(load['lag_p99_us'])}, p99.9 {_time(load['lag_p999_us'])}"
    fates = (
        f"{count_text(load['intended'])} due = {count_text(load['completed'])} completed "
        f"+ {count_text(load['errors'])} errors + {count_text(load['unsent'])} unsent "
        f"+ {count_text(load['lost'] + load['in_flight'])} unanswered"
    )
    read = f"p99 {_time(load['read_delay_p99_us'])}, max {_time(load['read_delay_max_us'])}, in no latency"
    return [f"send lag        {lag}", f"read delay      {read}", f"queries         {fates}"]


def _client(document: dict[str, Any]) -> list[str]:
    told = document["load"]["host"]
    if told is None:
        return []
    ambiguous = document["queries"]["ambiguous"]["count"]
    known = _time(told["error_us"])
    return [f"load from       {told['host']}, its clock known to {known}: {count_text(ambiguous)} queries ambiguous"]


def _flight_facts(flight: dict[str, Any] | None) -> list[str]:
    if flight is None or not flight["left_to_child"]:
        return []
    if flight["aborted"]:
        return [f"after fork      given up after {_time(flight['duration_us'])}: the child never got its page tables"]
    copied, took = count_text(flight["copied_tables"]), _time(flight["duration_us"])
    return [f"after fork      {copied} page tables copied, the last {took} after the fork took them up"]


def _cross_checks(info: dict[str, Any]) -> list[str]:
    """The server's own view of fork and window, and how far it is from the probe's."""
    lines = []
    if info.get("latest_fork_usec") is not None and info.get("fork_difference") is not None:
        lines.append(
            f"INFO            fork {_time(info['latest_fork_usec'])} ({info['fork_difference']:+.1%} against the probe)"
        )
    if info.get("rdb_last_bgsave_time_sec") is not None and info.get("window_difference_s") is not None:
        lines.append(
            f"                persisting {info['rdb_last_bgsave_time_sec']} s, in whole seconds "
            f"({info['window_difference_s']:+.2f} s against the window)"
        )
    return lines


def _time(microseconds: float | None) -> str:
    return "-" if microseconds is None else time_text(microseconds * 1000)

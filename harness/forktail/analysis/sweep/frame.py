# SPDX-License-Identifier: Apache-2.0
"""A sweep as data frames, for notebooks and for whoever goes on from there."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from forktail.analysis.quantity import size_text
from forktail.analysis.sweep.cells import Sweep
from forktail.analysis.sweep.changes import METRICS, changes
from forktail.analysis.sweep.label import fork_label, group_label

_COLUMNS = {
    "fork, ms": ("fork_us", 1000),
    "page-table copy, ms": ("page_table_copy_us", 1000),
    "normal p99, ms": ("normal.p99_us", 1000),
    "normal max, ms": ("normal.max_us", 1000),
    "snapshot p99, ms": ("snapshot.p99_us", 1000),
    "snapshot max, ms": ("snapshot.max_us", 1000),
    "interruptions": ("interruptions", 1),
    "out of service, ms": ("out_of_service_us", 1000),
}


def cells_frame(sweep: Sweep) -> pd.DataFrame:
    """A row for each fork and setting: how many runs were valid, and the means over these; NaN where there is none."""
    mark = " (EMULATED)" if sweep.emulated else ""
    rows = []
    for cell in sweep.cells:
        row: dict[str, object] = {
            "fork": fork_label(cell),
            "setting": group_label(cell),
            "valid": f"{cell['valid_runs']} of {cell['runs']}",
        }
        for title, (metric, divisor) in _COLUMNS.items():
            mean = cell[metric]["mean"]
            name = title + mark * title.endswith(", ms")
            row[name] = float("nan") if mean is None else mean / divisor
        rows.append(row)
    return pd.DataFrame(rows).set_index(["fork", "setting"])


def changes_frame(sweep: Sweep) -> pd.DataFrame:
    """A row for each metric, pair of forks and size: the change here, with its interval, and in the papers; percent."""
    rows = [
        {
            "metric": METRICS[change.metric],
            "from": change.old,
            "to": change.new,
            "data": ", ".join(filter(None, [size_text(change.size_bytes), change.setting])),
            "engine": change.engine,
            "here, %": None if change.here is None else 100 * change.here,
            "interval, %": "" if change.low is None else f"{100 * change.low:+.1f} to {100 * (change.high or 0):+.1f}",
            "verdict": change.verdict,
            "paper, %": None if change.paper is None else 100 * change.paper,
            "where the paper says so": change.source,
        }
        for change in changes(sweep)
    ]
    frame = pd.DataFrame(rows)
    return frame.astype({"here, %": float, "paper, %": float})


def verdicts_frame(sweep: Sweep) -> pd.DataFrame:
    """A row for each run: whether it is valid, and why not."""
    rows = [
        {"run": run["name"], "state": run["state"], "valid": run["valid"], "why not": " ".join(run["reasons"])}
        for run in sweep.document["runs"]
    ]
    return pd.DataFrame(rows).set_index("run")


def headline(directory: Path, sweep: Sweep) -> str:
    """What is shown, and what its times are worth, as Markdown."""
    document = sweep.document
    releases = ", ".join(sorted({release for cell in sweep.cells for release in cell["releases"]}))
    valid = sum(run["valid"] for run in document["runs"])
    lines = [
        f"**{document['name']}**, {document['started_at'] or 'not started'}, from `{directory.name}/`",
        f"Kernels: {releases or 'none yet'}; valid runs: {valid} of {len(document['runs'])}",
    ]
    if sweep.emulated:
        lines.append(f"**EMULATED** {sweep.emulation_text}")
    return "\n\n".join(lines)

# SPDX-License-Identifier: Apache-2.0
"""What one fork changes against another, here and in the papers: what may be compared even where times may not."""

from __future__ import annotations

from dataclasses import dataclass

from forktail.analysis.papers import read_papers
from forktail.analysis.sweep.cells import Sweep
from forktail.analysis.sweep.contrast import PAIRS
from forktail.analysis.sweep.label import Cell, again, flavour, fork_label, settings

METRICS = {
    "fork_us": "fork",
    "snapshot.p99_us": "p99 of snapshot queries",
    "snapshot.max_us": "slowest snapshot query",
    "interruptions": "interruptions",
}
"""The metrics that the papers compare, in words."""


@dataclass(frozen=True)
class Change:
    """From one fork to another at one size, as a share: -0.5 is half of the old."""

    metric: str
    """Of METRICS."""
    old: str
    new: str
    """A fork as tables call it; in a row that only a paper has, the kernel."""
    engine: str
    setting: str
    """What else the sweep varies; empty where that is nothing, and in a row that only a paper has."""
    size_bytes: int
    here: float | None
    """Of the means of two cells; None where the sweep has not both."""
    paper: float | None
    source: str
    """Paper, figure and section of `paper`."""
    low: float | None = None
    """The ends of the interval around `here`, as shares; None where the sweep's runs give none."""
    high: float | None = None
    verdict: str = ""
    """Whether the runs tell the two apart (`contrast.Contrast`); empty where they were not contrasted."""


def changes(sweep: Sweep) -> list[Change]:
    """All that this sweep or a paper has, by metric, pair of forks, engine and size.

    A kernel that was measured again is compared with itself: how far that is from nothing is the noise floor.
    """
    told = _of_papers()
    used = set()
    seen = {(one["metric"], one["old_cell"], one["new_cell"]): one for one in sweep.contrasts}
    rows: list[tuple[tuple[int, int], Change]] = []
    for place, metric in enumerate(METRICS):
        for old in sweep.cells:
            for new in sweep.cells:
                pair = _pair(old, new)
                here = _share(old[metric]["mean"], new[metric]["mean"])
                if pair is None or here is None or not old["valid_runs"] or not new["valid_runs"]:
                    continue
                key = (metric, flavour(old), flavour(new), str(new["engine"]), int(new["size_bytes"]))
                setting = ", ".join(f"{name} {value}" for name, value in settings(new).items())
                # What else the sweep varies is not what the paper's number was measured with.
                paper, source = (None, "") if again(new) or setting else told.get(key, (None, ""))
                used.add(key if paper is not None else None)
                contrast = seen.get((metric, old["name"], new["name"]), {})
                ends = (_less_one(contrast.get("low")), _less_one(contrast.get("high")))
                forks = (fork_label(old), fork_label(new))
                verdict = str(contrast.get("verdict", ""))
                change = Change(metric, *forks, key[3], setting, key[4], here, paper, source, *ends, verdict)
                rows.append(((place, pair), change))
    for (metric, old_kernel, new_kernel, engine, size), (paper, source) in told.items():
        if (metric, old_kernel, new_kernel, engine, size) in used:
            continue
        order = (list(METRICS).index(metric), PAIRS.index((old_kernel, new_kernel)))
        rows.append((order, Change(metric, old_kernel, new_kernel, engine, "", size, None, paper, source)))
    rows.sort(key=lambda row: (row[0], row[1].engine != "redis", row[1].engine, row[1].setting, row[1].size_bytes))
    return [change for _, change in rows]


def _pair(old: Cell, new: Cell) -> int | None:
    """The pair's place in the order, the noise floor last; None for cells that differ in more than their fork."""
    if again(old) or old["size_bytes"] != new["size_bytes"] or old["engine"] != new["engine"]:
        return None
    if settings(old) != settings(new):
        return None
    if again(new):
        return len(PAIRS) if flavour(old) == flavour(new) and old["copy_threads"] == new["copy_threads"] else None
    pair = (flavour(old), flavour(new))
    return PAIRS.index(pair) if pair in PAIRS else None


def _share(old: float | None, new: float | None) -> float | None:
    return None if not old or new is None else new / old - 1


def _less_one(ratio: float | None) -> float | None:
    return None if ratio is None else ratio - 1


def _of_papers() -> dict[tuple[str, str, str, str, int], tuple[float, str]]:
    """By metric, kernels, engine and size: the change that a paper tells, else that of two numbers that it states."""
    papers = read_papers()
    told: dict[tuple[str, str, str, str, int], tuple[float, str]] = {}
    for old in papers.number:
        for new in papers.number:
            key = (old.metric, old.kernel, new.kernel, old.engine, old.size_bytes)
            alike = all(getattr(old, name) == getattr(new, name) for name in ("paper", "metric", "engine", "size"))
            if alike and key[1:3] in PAIRS and old.metric in METRICS and {old.how, new.how} == {"stated"}:
                told[key] = (new.value / old.value - 1, f"{new.paper}, {new.source}")
    for change in papers.change:
        key = (change.metric, change.old, change.new, change.engine, change.size_bytes)
        told[key] = (change.value, f"{change.paper}, {change.source}")
    return told

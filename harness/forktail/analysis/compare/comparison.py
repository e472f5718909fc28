# SPDX-License-Identifier: Apache-2.0
"""A comparison whole: what is judged, what it says, and why it says so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from forktail import rundir
from forktail.analysis.compare.bootstrap import Change, Floats, Sample, changes, judged_changes
from forktail.analysis.compare.conditions import host_differences, workload_differences
from forktail.analysis.compare.match import Match, Pairing, match, pairing
from forktail.analysis.compare.side import MeasuredRun, Side, SideCell
from forktail.analysis.compare.thresholds import Metric, Thresholds
from forktail.analysis.compare.verdict import Verdict, worst
from forktail.analysis.mechanism import threads_text
from forktail.analysis.quantity import share_text
from forktail.analysis.sweep.label import group_label

Document = dict[str, Any]

COPY_THREADS = "snapshot.copy_threads"
_FOUND = 1.645
"""Standard errors beyond its bound at which a change is found 95 times in 100."""
_FEWEST_TO_SAY = 2
"""Runs without which not even the spread is known."""


@dataclass(frozen=True)
class Comparison:
    """The comparison as it is written; `document` has nothing but JSON's types (docs/formats.md)."""

    document: Document

    @property
    def verdict(self) -> Verdict:
        return Verdict(self.document["verdict"])


@dataclass
class _Cell:
    """A matched cell on its way to its verdict."""

    match: Match
    failures: list[str]
    pairing: Pairing | None = None
    judged: list[str] | None = None
    """The metrics that are judged."""
    shown: list[str] | None = None
    """Those that are shown only."""
    more_runs: int = 0
    """How many more runs of each side must be made before anything is judged."""


def compare_sides(base: Side, new: Side, thresholds: Thresholds, kernels: tuple[str, str] | None = None) -> Comparison:
    """The comparison of two sweeps; with `kernels`, of one kernel of BASE with another of NEW.

    Raises BadInput where a side has no such kernel.
    """
    cells = [_cell(one, thresholds) for one in match(base, new, kernels)]
    judged = {
        id(cell): _sample(cell.pairing, cell.judged, thresholds)
        for cell in cells
        if cell.pairing and cell.judged and not cell.failures and not cell.more_runs
    }
    level: float | None = None
    found: dict[int, list[Change]] = {}
    if judged:
        intervals, level = judged_changes([*judged.values()], thresholds.confidence, thresholds.family_error)
        found = dict(zip(judged, intervals, strict=True))
    documents = [_document(cell, found.get(id(cell)), base, new, thresholds, kernels) for cell in cells]
    failures = _common(documents)
    if not cells:
        failures.append("There is nothing to compare: neither BASE nor NEW has a cell.")
    return Comparison(
        {
            "schema": rundir.COMPARISON_SCHEMA,
            "verdict": str(worst(Verdict(cell["verdict"]) for cell in documents)),
            "base": _side(base, (one.base for one in _matches(cells)), kernels[0] if kernels else None),
            "new": _side(new, (one.new for one in _matches(cells)), kernels[1] if kernels else None),
            "failures": failures,
            "warnings": list(_warnings(cells)),
            "low_end_level": level,
            "thresholds": thresholds.model_dump(),
            "cells": documents,
        }
    )


def _matches(cells: Sequence[_Cell]) -> Iterator[Match]:
    return (cell.match for cell in cells)


def _side(side: Side, cells: Iterable[SideCell | None], kernel: str | None) -> Document:
    runs = [run for cell in cells if cell for run in cell.runs]
    return {
        "directory": str(side.directory),
        "name": side.name,
        "kernel": kernel,
        "started_at": min((run.started.isoformat() for run in runs if run.started), default=None),
        "releases": sorted({run.release for run in runs}),
        "machines": sorted({run.machine for run in runs}),
    }


def _cell(one: Match, thresholds: Thresholds) -> _Cell:
    base, new = one.base, one.new
    if base is None or new is None:
        return _Cell(one, [_absent(one)])
    base, new = _with_judged_figures(base, thresholds), _with_judged_figures(new, thresholds)
    failures = [*_lost(base, "BASE", thresholds), *_lost(new, "NEW", thresholds)]
    failures += _of_several(base, "BASE", thresholds) + _of_several(new, "NEW", thresholds)
    failures += _unlike(base, new, thresholds)
    runs = pairing(base, new)
    more_runs = max(0, thresholds.runs.fewest - min(len(runs.base), len(runs.new)))
    if min(len(runs.base), len(runs.new)) < _FEWEST_TO_SAY:
        return _Cell(one, failures, more_runs=more_runs)
    judged, shown = [], []
    for name, metric in thresholds.metrics.items():
        values = [run.values[name] for run in (*runs.base, *runs.new)]
        if all(value is None for value in values):
            continue
        lacking = [run.name for run in (*runs.base, *runs.new) if run.values[name] is None]
        if metric.judged and lacking:
            failures.append(f"{name} was not measured in {', '.join(sorted(set(lacking)))}.")
        elif metric.judged and all(value for value in values):
            judged.append(name)
        else:
            shown.append(name)
    if not failures and not any(thresholds.metrics[name].judged for name in (*judged, *shown)):
        failures.append("None of the judged metrics was measured.")
    return _Cell(one, failures, runs, judged, shown, more_runs)


def _absent(one: Match) -> str:
    has, lacks = ("BASE", "NEW") if one.base else ("NEW", "BASE")
    return f"{has} has {_label(one.either)} and {lacks} has not: sweep the same workload over the same kernels."


def _label(cell: SideCell) -> str:
    return f"{_fork(cell)}, {group_label(cell.planned)}"


def _fork(cell: SideCell) -> str:
    return cell.arm if cell.threads is None else f"{cell.arm}, {threads_text(cell.threads)}"


def _with_judged_figures(cell: SideCell, thresholds: Thresholds) -> SideCell:
    """The cell without the runs whose judged figures are withheld: these are lost to the comparison."""
    kept, lost = [], list(cell.lost)
    for run in cell.runs:
        reasons = [
            f"{name}: {run.withheld[name]}"
            for name, metric in thresholds.metrics.items()
            if metric.judged and name in run.withheld
        ]
        if reasons:
            lost.append(f"{run.name} has a figure that is withheld ({'; '.join(reasons)})")
        else:
            kept.append(run)
    return replace(cell, runs=kept, lost=lost)


def _lost(cell: SideCell, role: str, thresholds: Thresholds) -> list[str]:
    found = []
    if len(cell.lost) > thresholds.runs.lost:
        found.append(f"{role} lacks {_count(len(cell.lost), 'run')}: {'; '.join(cell.lost)}.")
    return found


def _of_several(cell: SideCell, role: str, thresholds: Thresholds) -> list[str]:
    """What changed on a side while it was measured."""
    found = []
    releases = sorted({run.release for run in cell.runs})
    if len(releases) > 1:
        found.append(f"{role} was measured on several kernels: {', '.join(releases)}.")
    machines = sorted({run.machine for run in cell.runs})
    if len(machines) > 1:
        found.append(f"{role} was measured on several machines: {', '.join(machines)}.")
    for run in cell.runs[1:]:
        first = cell.runs[0]
        different = host_differences(first.conditions, run.conditions, thresholds.may_differ, first.name, run.name)
        if different and len(machines) == 1:
            found.append(f"{role} was measured under several conditions: {'; '.join(different)}.")
            break
    return found


def _unlike(base: SideCell, new: SideCell, thresholds: Thresholds) -> list[str]:
    """In what the two cells differ that is not to be compared."""
    found = []
    may_differ = [*thresholds.may_differ]
    if base.threads is None or new.threads is None:
        may_differ.append(COPY_THREADS)
    workload = workload_differences(base.planned["workload"], new.planned["workload"], may_differ)
    if workload:
        found.append(f"BASE and NEW are of different workloads: {'; '.join(workload)}.")
    if not base.runs or not new.runs:
        return found
    one, other = base.runs[0], new.runs[0]
    if one.machine != other.machine:
        found.append(f"BASE was measured on {one.machine} and NEW on {other.machine}: their times are of two worlds.")
        return found
    host = host_differences(one.conditions, other.conditions, thresholds.may_differ)
    if host:
        found.append(f"BASE and NEW were measured on different hosts or under different conditions: {'; '.join(host)}.")
    return found


def _sample(runs: Pairing, names: Sequence[str], thresholds: Thresholds) -> Sample:
    metrics = [thresholds.metrics[name] for name in names]
    signs = np.array([1.0 if metric.better == "lower" else -1.0 for metric in metrics])

    def logarithms(side: Sequence[MeasuredRun]) -> Floats:
        values: Floats = np.array([[run.values[name] for name in names] for run in side], dtype=np.float64)
        signed: Floats = np.log(values) * signs
        return signed

    regress = np.log1p(np.array([metric.regress for metric in metrics]))
    return Sample(logarithms(runs.base), logarithms(runs.new), runs.paired, regress)


def _document(
    cell: _Cell,
    judged: list[Change] | None,
    base: Side,
    new: Side,
    thresholds: Thresholds,
    kernels: tuple[str, str] | None,
) -> Document:
    metrics = []
    if cell.pairing:
        seen: dict[str, Change] = dict(zip(cell.judged or [], judged, strict=True)) if judged else {}
        shown = [name for name in (*(cell.judged or []), *(cell.shown or [])) if name not in seen]
        ratios = [name for name in shown if _all_positive(cell.pairing, name)]
        if ratios:
            seen |= dict(
                zip(
                    ratios,
                    changes([_sample(cell.pairing, ratios, thresholds)], thresholds.confidence)[0],
                    strict=True,
                )
            )
        again = any(side.again for side in (cell.match.base, cell.match.new) if side)
        for name, metric in thresholds.metrics.items():
            if name not in (cell.judged or []) and name not in (cell.shown or []):
                continue
            floor = None if again else _floor((base, new), cell.match.either, name, thresholds)
            metrics.append(_metric(cell, name, metric, seen.get(name), floor))
    verdict = worst(Verdict(metric["verdict"]) for metric in metrics if metric["verdict"])
    return {
        "label": _label(cell.match.either) if kernels is None else _across(cell.match),
        "base": _cell_side(cell.match.base),
        "new": _cell_side(cell.match.new),
        "size_bytes": cell.match.either.planned["size_bytes"],
        "engine": cell.match.either.planned["engine"],
        "values": cell.match.either.planned["values"],
        "paired": cell.pairing.paired if cell.pairing else None,
        "runs": [len(cell.pairing.base), len(cell.pairing.new)] if cell.pairing else [0, 0],
        "verdict": str(
            Verdict.INFRASTRUCTURE if cell.failures else Verdict.INCONCLUSIVE if cell.more_runs else verdict
        ),
        "more_runs": _more_runs(cell, metrics),
        "failures": cell.failures,
        "metrics": metrics,
    }


def _more_runs(cell: _Cell, metrics: Sequence[Document]) -> int | None:
    """About how many more runs of each side would end in a verdict; None where there is one, or none can be had."""
    if cell.failures:
        return None
    runs = min(len(cell.pairing.base), len(cell.pairing.new)) if cell.pairing else 0
    wanted = [metric["runs_wanted"] - runs for metric in metrics if metric["runs_wanted"]]
    return max([cell.more_runs, *wanted]) or None


def _across(one: Match) -> str:
    forks = " to ".join(_fork(cell) for cell in (one.base, one.new) if cell)
    return f"{forks}, {group_label(one.either.planned)}"


def _cell_side(cell: SideCell | None) -> Document | None:
    if cell is None:
        return None
    return {
        "cell": cell.planned["name"],
        "kernel": cell.kernel,
        "copy_threads": cell.threads,
        "releases": sorted({run.release for run in cell.runs}),
        "valid_runs": len(cell.runs),
        "lost": cell.lost,
        "boots": len({run.boot for run in cell.runs if run.boot}),
    }


def _values(runs: Sequence[MeasuredRun], name: str) -> list[float]:
    return [value for value in (run.values[name] for run in runs) if value is not None]


def _all_positive(runs: Pairing, name: str) -> bool:
    return all(run.values[name] for run in (*runs.base, *runs.new))


def _metric(cell: _Cell, name: str, metric: Metric, change: Change | None, floor: float | None) -> Document:
    assert cell.pairing is not None
    one, other = _values(cell.pairing.base, name), _values(cell.pairing.new, name)
    found: Document = {
        "metric": name,
        "better": metric.better,
        "judged": metric.judged,
        "base": _geometric(one),
        "new": _geometric(other),
        "ratio": None,
        "low": None,
        "high": None,
        "noise": [_noise(one), _noise(other)],
        "noise_floor": math.exp(floor) if floor is not None else None,
        "runs_wanted": None,
        "verdict": None,
        "reason": None,
    }
    if change is not None:
        sign = 1 if metric.better == "lower" else -1
        ends = sorted((sign * change.low, sign * change.high))
        found |= {"ratio": math.exp(sign * change.size), "low": math.exp(ends[0]), "high": math.exp(ends[1])}
    if not metric.judged:
        return found
    if cell.failures:
        return found | {"verdict": str(Verdict.INFRASTRUCTURE), "reason": "not judged"}
    if cell.more_runs:
        return found | {
            "verdict": str(Verdict.INCONCLUSIVE),
            "reason": "the runs are too few to be judged",
            "runs_wanted": min(len(one), len(other)) + cell.more_runs,
        }
    if change is None:
        if not any(one) and not any(other):
            return found | {"verdict": str(Verdict.PASS), "reason": "none on either side"}
        return found | {
            "verdict": str(Verdict.INCONCLUSIVE),
            "reason": "it is 0 in some runs, and a ratio needs more than that",
        }
    verdict, reason = _judge(change, metric, floor)
    if verdict == Verdict.INCONCLUSIVE:
        found["runs_wanted"] = _runs_wanted(change, metric, min(len(one), len(other)))
    return found | {"verdict": str(verdict), "reason": reason}


def _judge(change: Change, metric: Metric, floor: float | None) -> tuple[Verdict, str]:
    worse = share_text(math.expm1(abs(change.size)))
    if change.low > 0 and change.size >= math.log1p(metric.regress):
        if floor is not None and change.size <= floor:
            return Verdict.INCONCLUSIVE, (
                f"{worse} worse, but the same kernel measured twice differs by {share_text(math.expm1(floor))} there"
            )
        return Verdict.REGRESS, f"{worse} worse"
    if change.high < math.log1p(metric.rule_out):
        if change.low > 0:
            return Verdict.PASS, f"{worse} worse, less than the {share_text(metric.regress)} that count"
        if change.high < -math.log1p(metric.regress):
            return Verdict.PASS, "better"
        return Verdict.PASS, f"no change of {share_text(metric.rule_out)} for the worse"
    return Verdict.INCONCLUSIVE, (
        f"up to {share_text(math.expm1(change.high))} worse is possible: the runs are too few for their noise"
    )


def _runs_wanted(change: Change, metric: Metric, runs: int) -> int | None:
    """About how many runs a side would find a change of `rule_out`, 95 times in 100, at the noise seen."""
    if not change.error:
        return None
    bound = (change.size - change.low) / change.error
    wanted = math.ceil(runs * ((bound + _FOUND) * change.error / math.log1p(metric.rule_out)) ** 2)
    return wanted if wanted > runs else None


def _floor(sides: Sequence[Side], cell: SideCell, name: str, thresholds: Thresholds) -> float | None:
    """How far a kernel measured twice differs in a cell's setting, the greater of both sides, in logarithms."""
    found = []
    for side in sides:
        for again in (one for one in side.cells if one.again and one.setting == cell.setting):
            for first in side.cells:
                if first.again or (first.kernel, first.setting) != (again.kernel, again.setting):
                    continue
                if first.threads != again.threads or min(len(first.runs), len(again.runs)) < thresholds.runs.fewest:
                    continue
                one, other = _geometric(_values(first.runs, name)), _geometric(_values(again.runs, name))
                if one and other:
                    found.append(abs(math.log(other / one)))
    return max(found, default=None)


def _geometric(values: Sequence[float]) -> float | None:
    """The geometric mean; the arithmetic one where a value is 0."""
    if not values:
        return None
    if all(values):
        return math.exp(math.fsum(math.log(value) for value in values) / len(values))
    return math.fsum(values) / len(values)


def _noise(values: Sequence[float]) -> float | None:
    """The standard deviation from run to run, as a share."""
    if len(values) < _FEWEST_TO_SAY or not all(values):
        return None
    return math.expm1(float(np.std(np.log(values), ddof=1)))


def _common(cells: Sequence[Document]) -> list[str]:
    """The failures that all cells have: they are of the whole."""
    if not cells:
        return []
    return [failure for failure in cells[0]["failures"] if all(failure in cell["failures"] for cell in cells)]


def _warnings(cells: Sequence[_Cell]) -> Iterator[str]:
    compared = [cell for cell in cells if cell.pairing and not cell.failures]
    if any(cell.pairing and not cell.pairing.paired for cell in compared):
        yield (
            "BASE and NEW were not measured in turn: a change of the host between them looks like one of what is "
            "compared, so confirm an alarm by measuring both again."
        )
    sides = [side for cell in compared for side in (cell.match.base, cell.match.new) if side]
    if any(len({run.boot for run in side.runs if run.boot}) == 1 for side in sides):
        yield (
            "All runs of a cell are of one boot: a difference between boots looks like one of what is compared, "
            "so confirm an alarm after another boot."
        )
    for text, attribute in (("probes", "probes"), ("versions of forktail", "forktail")):
        if any(_several(cell, attribute) for cell in compared):
            yield f"BASE and NEW were measured with different {text}: what those cost is in the change."


def _several(cell: _Cell, attribute: str) -> bool:
    assert cell.pairing is not None
    return len({str(getattr(run, attribute)) for run in (*cell.pairing.base, *cell.pairing.new)}) > 1


def _count(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'s' * (number != 1)}"

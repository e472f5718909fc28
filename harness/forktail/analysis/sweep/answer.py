# SPDX-License-Identifier: Apache-2.0
"""The answer of a sweep in words: which kernel is better at what, and what the runs cannot tell apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from forktail.analysis.quantity import share_text
from forktail.analysis.sweep.contrast import ALIKE, ALIKE_WITHIN, HIGHER, INCONCLUSIVE, LOWER
from forktail.analysis.sweep.label import Cell, again, flavour, fork_label, group_labels

Document = dict[str, Any]

NAMES = {
    "snapshot.p99_us": "p99",
    "snapshot.max_us": "slowest query",
    "fork_us": "fork",
    "interruptions": "interruptions",
}
"""The contrasted metrics as tables call them: latencies of snapshot queries, the time in fork, copies after it."""

_ANSWERED = ("snapshot.p99_us", "snapshot.max_us", "fork_us")
"""What the answer is about: the tail that users see, and what the kernels were made to shorten."""


def answer(cells: Sequence[Cell], contrasts: Sequence[Document]) -> str:
    """One sentence for each setting of the sweep."""
    groups = group_labels(cells)
    sentences = [
        (f"{group}: " if len(groups) > 1 else "")
        + _sentence(cells, [one for one in contrasts if one["group"] == group])
        for group in groups
    ]
    return " ".join(dict.fromkeys(sentences))


def _sentence(cells: Sequence[Cell], contrasts: Sequence[Document]) -> str:
    asked = [one for one in contrasts if one["metric"] in _ANSWERED and sum(one["runs"])]
    if not contrasts:
        compared = {flavour(cell) for cell in cells if not again(cell)}
        return "Only one kernel was measured." if len(compared) == 1 else "No two kernels here are compared."
    if not asked:
        return "No valid run has a figure to compare."
    names = _short_names(cells)
    asked = [one | {"old": names[one["old"]], "new": names[one["new"]]} for one in asked]
    return "; ".join([*_better(asked), *_open(asked)]) + "."


def _short_names(cells: Sequence[Cell]) -> dict[str, str]:
    """The kernel's name for each fork, without its threads where all forks of the kernel have as many."""
    labels = {fork_label(cell): str(cell["arm"]) for cell in cells}
    arms = list(labels.values())
    return {label: arm if arms.count(arm) == 1 else label for label, arm in labels.items()}


def _better(contrasts: Sequence[Document]) -> list[str]:
    """Who beats whom at what, a clause for each kernel that beats another: the one that beats most comes first."""
    wins: dict[str, dict[str, list[str]]] = {}
    for one in contrasts:
        if one["verdict"] not in (LOWER, HIGHER):
            continue
        winner, loser = (one["new"], one["old"]) if one["verdict"] == LOWER else (one["old"], one["new"])
        left = one["ratio"] if one["verdict"] == LOWER else 1 / one["ratio"]
        metric = f"{NAMES[one['metric']]} ({share_text(1 - left)} lower)"
        wins.setdefault(winner, {}).setdefault(loser, []).append(metric)
    most = sorted(wins, key=lambda winner: -sum(map(len, wins[winner].values())))
    return [
        f"{winner} is better than "
        + _listed([f"{loser} in {_listed(metrics)}" for loser, metrics in wins[winner].items()], ", and than ")
        for winner in most
    ]


def _open(contrasts: Sequence[Document]) -> list[str]:
    """What stays open, a clause for each pair of kernels."""
    clauses = []
    same = f"do not differ by {100 * (ALIKE_WITHIN - 1):.0f} % in"
    for verdict, text in ((ALIKE, same), (INCONCLUSIVE, "cannot be told apart in")):
        pairs: dict[tuple[str, str], list[Document]] = {}
        for one in contrasts:
            if one["verdict"] == verdict:
                pairs.setdefault((one["old"], one["new"]), []).append(one)
        for (old, new), found in pairs.items():
            metrics = _listed([NAMES[one["metric"]] for one in found])
            clauses.append(f"{old} and {new} {text} {metrics}{_more(found)}")
    return clauses


def _more(contrasts: Sequence[Document]) -> str:
    wanted = [one["more_runs"] for one in contrasts if one["more_runs"]]
    return f" (inconclusive: {more_runs(max(wanted))} of each)" if wanted else ""


def more_runs(number: int) -> str:
    """So many more runs, in words."""
    return f"{number} more run{'s' * (number != 1)}"


def _listed(parts: Iterable[str], between: str = ", ") -> str:
    *most, last = parts
    if not most:
        return last
    return between.join([*most, last]) if between != ", " else f"{', '.join(most)} and {last}"

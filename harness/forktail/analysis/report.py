# SPDX-License-Identifier: Apache-2.0
"""The report of a run: one HTML file that needs nothing beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from forktail.analysis.attribute import CAUSES, DELAYS, PARTS
from forktail.analysis.figures import no_interruptions, part_names
from forktail.analysis.page import page, plain
from forktail.analysis.result import Result
from forktail.analysis.summary import Summary


def report(result: Result, summary: Summary, pictures: Mapping[str, bytes]) -> str:
    """The report as HTML; `pictures` are PNG files by the names of `figures.FIGURES`."""
    return page(
        "report.html.j2",
        pictures,
        s=summary.document,
        closed=result.run.closed is not None,
        threads=result.run.threads,
        parts=PARTS,
        part_names=part_names(result),
        causes=CAUSES,
        delays=DELAYS,
        environment=list(_flat(result.run.environment)),
        workload=result.run.workload,
        no_interruptions=no_interruptions(result),
    )


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", plain(value)

# SPDX-License-Identifier: Apache-2.0
"""The report of a run: one HTML file that needs nothing beside it."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jinja2

from forktail.analysis.attribute import CAUSES, PARTS, STALLS
from forktail.analysis.figures import PART_NAMES, no_interruptions
from forktail.analysis.quantity import count_text, share_text, time_text
from forktail.analysis.result import Result
from forktail.analysis.summary import Summary


def report(result: Result, summary: Summary, pictures: Mapping[str, bytes]) -> str:
    """The report as HTML; `pictures` are PNG files by the names of `figures.FIGURES`."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(us=_microseconds, count=_count, share=_share, time=time_text, plain=_plain)
    return environment.get_template("report.html.j2").render(
        s=summary.document,
        pictures={name: base64.b64encode(png).decode("ascii") for name, png in pictures.items()},
        parts=PARTS,
        part_names=PART_NAMES,
        causes=CAUSES,
        stalls=STALLS,
        environment=list(_flat(result.run.environment)),
        workload=result.run.workload,
        no_interruptions=no_interruptions(result),
    )


def _microseconds(value: float | None) -> str:
    return "n/a" if value is None else time_text(value * 1000)


def _count(value: float | None) -> str:
    return "n/a" if value is None else count_text(value)


def _share(value: float | None) -> str:
    return "n/a" if value is None else share_text(value)


def _plain(value: object) -> str:
    return "n/a" if value is None else str(value)


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", _plain(value)

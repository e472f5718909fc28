# SPDX-License-Identifier: Apache-2.0
"""HTML pages that need nothing beside them."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
from matplotlib.figure import Figure

from forktail.analysis.quantity import change_text, count_text, range_text, share_text, size_text, time_text


def png(figure: Figure) -> bytes:
    """The figure as a PNG without a trace of the program that wrote it, so that equal figures are equal files."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()


def page(template: str, pictures: Mapping[str, bytes], **values: Any) -> str:
    """Render a template of this package; `pictures` are PNG files by name, put into the page itself."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(
        us=_microseconds,
        us_to=_microseconds_to,
        count=_count,
        share=_share,
        time=time_text,
        plain=plain,
        size=size_text,
        change=change_text,
    )
    encoded = {name: base64.b64encode(picture).decode("ascii") for name, picture in pictures.items()}
    return environment.get_template(template).render(pictures=encoded, **values)


def plain(value: object) -> str:
    """A value as text, and what was not measured as n/a."""
    return "n/a" if value is None else str(value)


def _microseconds(value: float | None) -> str:
    return "n/a" if value is None else time_text(value * 1000)


def _microseconds_to(low: float, high: float) -> str:
    return range_text(low * 1000, high * 1000)


def _count(value: float | None) -> str:
    return "n/a" if value is None else count_text(value)


def _share(value: float | None) -> str:
    return "n/a" if value is None else share_text(value)

# SPDX-License-Identifier: Apache-2.0
"""What the papers say in numbers, each with where it stands: `papers.toml`, read and checked."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator

from forktail.document import document_of, read_toml

NUMBERS = Path(__file__).with_suffix(".toml")

GIB = 2**30


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Paper(_Entry):
    """A publication; `machine` is what its experiments ran on."""

    title: str
    where: str
    machine: str


class _Quotation(_Entry):
    paper: str
    source: str
    """Figure and section."""
    metric: str
    """A metric of a sweep's cell (docs/formats.md), or `page_table_copy_share`."""
    engine: Literal["redis", "keydb"] = "redis"
    size: float
    """GiB of data."""

    @property
    def size_bytes(self) -> int:
        return int(self.size * GIB)


class Number(_Quotation):
    """One number of a paper. A `value` is in the metric's unit: microseconds, a count, or a share."""

    kernel: Literal["default", "odf", "async-fork"]
    value: float
    how: Literal["stated", "about", "below", "above", "up to"] = "stated"


class Change(_Quotation):
    """A change from one kernel to another, as a share: -0.5 is half of the old value."""

    old: Literal["default", "odf"]
    new: Literal["odf", "async-fork"]
    value: float


class Papers(_Entry):
    """All of the file."""

    papers: dict[str, Paper]
    """By the letter that docs/experiments.md gives them."""
    number: tuple[Number, ...]
    change: tuple[Change, ...]

    @model_validator(mode="after")
    def _papers_are_known(self) -> Papers:
        for quotation in (*self.number, *self.change):
            if quotation.paper not in self.papers:
                raise ValueError(f"paper {quotation.paper!r} is quoted, but not among [papers]")
        return self

    def numbers(self, metric: str, kernels: Collection[str], papers: Collection[str] = ("P",)) -> list[Number]:
        """What the given papers say of a metric on any of the kernels, by kernel and size."""
        found = [n for n in self.number if n.metric == metric and n.kernel in kernels and n.paper in papers]
        return sorted(found, key=lambda number: (number.engine, number.kernel, number.size))


@cache
def read_papers() -> Papers:
    """The papers' numbers; BadInput where the file is damaged."""
    noun = "file of the papers' numbers"
    document = read_toml(NUMBERS, noun, "the one that forktail comes with")
    return document_of(Papers, document, f"The {noun} {NUMBERS}")

# SPDX-License-Identifier: Apache-2.0
"""The thresholds of a comparison: what is judged, what is a regress, and what a pass must have ruled out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from forktail.analysis.sweep.cells import METRICS
from forktail.document import document_of, nearest, read_toml

DEFAULT_THRESHOLDS = Path(__file__).with_suffix(".toml")
"""The shipped thresholds; a file of the user's names what differs from them."""


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Metric(_Section):
    """How a metric of METRICS is judged; changes are shares of BASE (0.10: 10 %)."""

    better: Literal["lower", "higher"] = "lower"
    judged: bool = True
    regress: float = Field(default=0.10, gt=0, le=10)
    rule_out: float = Field(default=0.20, gt=0, le=10)

    @model_validator(mode="after")
    def _agree(self) -> Metric:
        if self.rule_out < self.regress:
            raise ValueError(f"rule_out is {self.rule_out}, less than regress, {self.regress}: a pass would hide both")
        return self


class Runs(_Section):
    """How many runs a cell must have on each side, and how many of those planned it may lack."""

    fewest: int = Field(default=3, ge=3, le=1000)
    lost: int = Field(default=0, ge=0, le=1000)


class Thresholds(_Section):
    """All thresholds of a comparison (docs/compare.md)."""

    family_error: float = Field(default=0.01, ge=0.0001, le=0.2)
    confidence: float = Field(default=0.95, ge=0.5, le=0.999)
    may_differ: list[str] = []
    runs: Runs = Runs()
    metrics: dict[str, Metric]

    @model_validator(mode="after")
    def _known(self) -> Thresholds:
        unknown = set(self.metrics) - {*METRICS}
        faults = [f"metrics.{name} is not measured: {nearest(name, METRICS)}" for name in unknown]
        if not any(metric.judged for metric in self.metrics.values()):
            faults.append("no metric is judged: set judged = true for one")
        if faults:
            raise ValueError("; ".join(sorted(faults)))
        return self


def read_thresholds(path: Path | None = None) -> Thresholds:
    """The shipped thresholds with what the file at `path` names put over them; BadInput lists its faults."""
    shipped = read_toml(DEFAULT_THRESHOLDS, "thresholds file", "another")
    if path is None:
        return document_of(Thresholds, shipped, f"The thresholds file {DEFAULT_THRESHOLDS}")
    given = read_toml(path, "thresholds file", "a TOML file laid out as `forktail compare --print-thresholds` shows")
    return document_of(Thresholds, _over(shipped, given), f"The thresholds file {path}")


def _over(shipped: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The given document put over the shipped one, section by section."""
    merged = dict(shipped)
    for key, value in given.items():
        below = shipped.get(key)
        merged[key] = _over(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged

# SPDX-License-Identifier: Apache-2.0
"""The analysis of a sweep: pure functions of its plan and of its runs' summaries."""

from __future__ import annotations

from pathlib import Path

from forktail import rundir
from forktail.analysis import analyse
from forktail.analysis.page import page, png
from forktail.analysis.sweep.by_size import BY_SIZE
from forktail.analysis.sweep.cells import Sweep, read_sweep
from forktail.analysis.sweep.changes import METRICS as COMPARED
from forktail.analysis.sweep.changes import changes
from forktail.analysis.sweep.figures import FIGURES
from forktail.analysis.sweep.label import fork_label, settings
from forktail.analysis.sweep.table import missing_figures

__all__ = ["Sweep", "analyse_sweep"]


def analyse_sweep(directory: Path) -> Sweep:
    """Analyse every finished run that has no summary yet, and write `sweep.json`, pictures and `report.html`.

    Raises BadInput where the directory holds no sweep, or a run in it is damaged.
    """
    plan = rundir.read_plan(directory)
    for run in plan["runs"]:
        path = directory / rundir.RUNS / run["name"]
        if (path / rundir.MANIFEST).exists() and not (path / rundir.SUMMARY).exists():
            analyse(path)
    sweep = read_sweep(directory)
    rundir.write_json(directory / rundir.SWEEP, sweep.document)
    pictures = {}
    by_size = len({cell["size_bytes"] for cell in sweep.cells}) > 1
    for name, draw in (FIGURES | (BY_SIZE if by_size else {})).items():
        pictures[name] = png(draw(sweep))
        (directory / f"{name}.png").write_bytes(pictures[name])
    html = page(
        "sweep/report.html.j2",
        pictures,
        s=sweep.document,
        cells=sweep.cells,
        answer=sweep.answer,
        missing=missing_figures(sweep.cells),
        closed_loop=sweep.closed_loop_text,
        emulation=sweep.emulation_text,
        fork_label=fork_label,
        settings=settings,
        changes=[change for change in changes(sweep) if change.here is not None],
        compared=COMPARED,
        by_size=[(name, draw.__doc__) for name, draw in BY_SIZE.items()] if by_size else [],
    )
    (directory / rundir.REPORT).write_text(html, encoding="utf-8")
    return sweep

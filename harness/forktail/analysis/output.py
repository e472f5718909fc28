# SPDX-License-Identifier: Apache-2.0
"""The files that an analysis puts into its run directory."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from forktail import rundir
from forktail.analysis.dataset import write_events, write_queries
from forktail.analysis.figures import FIGURES
from forktail.analysis.page import png
from forktail.analysis.report import report
from forktail.analysis.result import Result
from forktail.analysis.summary import Summary


def write_output(result: Result, summary: Summary) -> None:
    """Write the data set, the figures, the report and last the summary."""
    directory = result.run.path
    # Compression runs outside Python's lock, so it goes on beside the drawing.
    with ThreadPoolExecutor(1) as beside:
        written = [
            beside.submit(write_events, result, directory / rundir.EVENTS),
        ]
        if result.run.closed is None:
            written.append(beside.submit(write_queries, result, directory / rundir.QUERIES))
        pictures = {}
        for name, draw in FIGURES.items():
            pictures[name] = png(draw(result))
            (directory / f"{name}.png").write_bytes(pictures[name])
        html = report(result, summary, pictures)
        for future in written:
            future.result()
    (directory / rundir.REPORT).write_text(html, encoding="utf-8")
    rundir.write_json(directory / rundir.SUMMARY, summary.document)

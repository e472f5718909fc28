# SPDX-License-Identifier: Apache-2.0
"""The analysis of a run: pure functions of its directory."""

from __future__ import annotations

from pathlib import Path

from forktail.analysis.result import derive
from forktail.analysis.run import read_run
from forktail.analysis.summary import Summary, summarise

__all__ = ["Summary", "analyse"]


def analyse(run_dir: Path, *, write: bool = True) -> Summary:
    """Analyse a whole run directory; with `write`, put data set, figures, report and summary into it.

    The raw files are only read, and the same ones always give the same summary.
    Raises BadInput that names the file where the directory is not a whole run.
    """
    result = derive(read_run(run_dir))
    summary = summarise(result)
    if write:
        # Plotting and Parquet are slow to import, and a bare summary needs neither.
        from forktail.analysis.output import write_output

        write_output(result, summary)
    return summary

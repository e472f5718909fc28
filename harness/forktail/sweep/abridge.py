# SPDX-License-Identifier: Apache-2.0
"""A sweep without its raw files, small enough to be committed: a reference, or the baseline of a comparison."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forktail import rundir
from forktail.errors import BadInput

KEPT = (rundir.SUMMARY, rundir.ENVIRONMENT)
"""What is kept of a run: what a sweep's report, a comparison and the notebooks read."""

_LOCAL_PATH = re.compile(r"(?<![\w./:-])/(?!(?:usr|bin|sbin|sys|dev|proc|boot|etc)/)[\w.+@~-]+(?:/[\w.+@~-]+)+")
"""An absolute path that says something of the machine it is of, and nothing anywhere else."""


def abridge(sweep: Path, out: Path) -> None:
    """Write the sweep's plan, `sweep.json`, and of each run summary and environment into `out`.

    Of an absolute path only the name is kept, unless it is one that every Linux host has. An abridged sweep in `out` is
    replaced; anything else there is BadInput, as is a sweep without its report.
    """
    plan = rundir.read_plan(sweep) if (sweep / rundir.PLAN).exists() else None
    if plan is None or not (sweep / rundir.SWEEP).exists():
        raise BadInput(f"{sweep} is no sweep with a report: give a directory that `forktail sweep` finished.")
    _refuse(sweep, out)
    partial = out.with_name(out.name + rundir.PARTIAL_SUFFIX)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    _write(partial / rundir.SWEEP, rundir.read_json(sweep / rundir.SWEEP, rundir.SWEEP_SCHEMA))
    write_kept(sweep, plan, partial)
    if out.exists():
        shutil.rmtree(out)
    partial.rename(out)


def write_kept(sweep: Path, plan: dict[str, Any], out: Path) -> None:
    """Write what is kept of the plan and of those runs that have a summary into a directory that is there."""
    _write(out / rundir.PLAN, plan)
    for run in plan["runs"]:
        source = sweep / rundir.RUNS / run["name"]
        if (source / rundir.SUMMARY).exists():
            target = out / rundir.RUNS / run["name"]
            target.mkdir(parents=True)
            for name in KEPT:
                _write(target / name, rundir.read_json(source / name))


def _refuse(sweep: Path, out: Path) -> None:
    """Never a directory that holds more than an abridged sweep: raw files cannot be made again."""
    if out.resolve() == sweep.resolve():
        raise BadInput(f"{out} is the sweep itself: give another directory for what is kept of it.")
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file: give a directory that is not there yet, or holds an abridged sweep.")
    kept = {rundir.PLAN, rundir.SWEEP, *KEPT}
    others = [path for path in out.rglob("*") if path.is_file() and path.name not in kept] if out.exists() else []
    if others:
        raise BadInput(f"{out} holds more than an abridged sweep ({others[0]}): give another directory.")


def _write(path: Path, document: dict[str, Any]) -> None:
    # Two lists of the summary are half of its size when each number has a line of its own.
    text = json.dumps(_walk(document, _without_local_paths), indent=1, ensure_ascii=False)
    path.write_text(re.sub(r"\n {4,}|\n {3}(?=[\]}])", " ", text) + "\n", encoding="utf-8")


def _walk(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, dict):
        return {key: _walk(item, change) for key, item in value.items()}
    if isinstance(value, list):
        return [_walk(item, change) for item in value]
    return change(value) if isinstance(value, str) else value


def _without_local_paths(text: str) -> str:
    return _LOCAL_PATH.sub(lambda path: path[0].rpartition("/")[2], text)

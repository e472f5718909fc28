# SPDX-License-Identifier: Apache-2.0
"""The run directory: its file names and versions, and how it becomes whole (docs/formats.md)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from forktail.errors import BadInput, EnvironmentLacks

RUN_SCHEMA = "forktail.run/1"
LOAD_SCHEMA = "forktail.load/2"
CLOSED_LOAD_SCHEMA = "forktail.closed-load/1"
EVENTS_SCHEMA = "forktail.events/1"
SUMMARY_SCHEMA = "forktail.summary/1"
PLAN_SCHEMA = "forktail.plan/1"
SWEEP_SCHEMA = "forktail.sweep/1"
COMPARISON_SCHEMA = "forktail.comparison/1"
CLIENT_SCHEMA = "forktail.client/1"

WORKLOAD = "workload.toml"
ENVIRONMENT = "environment.json"
INFO = "info.jsonl"
QUERY_LOG = "queries.bin"
LOAD = "load.json"
EVENT_LOG = "events.bin"
PROBE = "probe.json"
MANIFEST = "run.json"
SERVER = "server"
INFO_BEFORE = "info-before.json"
INFO_AFTER = "info-after.json"
PEER = "generator"
CLIENT = "client.json"
QUERIES = "queries.parquet"
EVENTS = "events.parquet"
SUMMARY = "summary.json"
REPORT = "report.html"
PLAN = "plan.json"
SWEEP = "sweep.json"
RUNS = "runs"

RAW_FILES = (WORKLOAD, ENVIRONMENT, INFO, QUERY_LOG, LOAD, EVENT_LOG, PROBE, MANIFEST)
"""Of these a run whose generator is a closed loop has no query log; one whose load has another host has CLIENT too."""

PARTIAL_SUFFIX = ".partial"


def begin(final: Path) -> Path:
    """Make the directory of a run under way, `NAME.partial`, and return it.

    The numbered leftovers of earlier failed runs stay: their logs may still be wanted.
    """
    if final.exists():
        raise BadInput(f"{final} exists already: choose another --out, or remove it first.")
    number = 0
    while True:
        partial = final.with_name(final.name + (f".{number}" if number else "") + PARTIAL_SUFFIX)
        try:
            partial.mkdir(parents=True)
        except FileExistsError:
            number += 1
        except OSError as error:
            raise EnvironmentLacks(
                f"The run directory {partial} cannot be made ({error.strerror}): choose another --out."
            ) from error
        else:
            return partial


def finish(partial: Path, final: Path, manifest: Mapping[str, Any]) -> None:
    """Write the manifest durably, then give the directory its final name: from here on it is a run."""
    write_json(partial / MANIFEST, manifest)
    try:
        partial.rename(final)
    except OSError as error:
        raise BadInput(
            f"{partial} is whole but cannot be renamed to {final.name} ({error.strerror}): rename it by hand."
        ) from error


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write one JSON document durably: a reader sees the old file or the new one, never a part."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def read_json(path: Path, schema: str | None = None) -> dict[str, Any]:
    """Read one JSON object and check its `schema`; every fault is a `BadInput` that names the file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise BadInput(f"{path} is missing: give a run directory that `forktail run` finished.") from error
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadInput(f"{path} cannot be read as JSON ({error}): restore it, or run again.") from error
    if not isinstance(value, dict):
        raise BadInput(f"{path} is not a JSON object: restore it, or run again.")
    if schema is not None and value.get("schema") != schema:
        raise BadInput(
            f"{path} is of schema {value.get('schema')!r}, but this forktail reads {schema!r}: "
            "use the forktail that wrote it."
        )
    return value


def read_plan(sweep: Path) -> dict[str, Any]:
    """The plan of a sweep, its spare runs only as far as they were made; BadInput as of `read_json`."""
    plan = read_json(sweep / PLAN, PLAN_SCHEMA)
    runs = [run for run in plan["runs"] if not run.get("spare") or (sweep / RUNS / run["name"]).is_dir()]
    return plan | {"runs": runs}


def check(run: Path) -> dict[str, Any]:
    """Return the manifest of a whole run directory, or say in one sentence why it is none."""
    if not run.is_dir():
        raise BadInput(f"{run} is not a directory: give the run directory that `forktail run` printed.")
    if re.search(re.escape(PARTIAL_SUFFIX) + r"$", run.name):
        raise BadInput(f"{run} is of a run that did not finish: its logs can be read, but not reported; run again.")
    manifest = read_json(run / MANIFEST, RUN_SCHEMA)
    closed = (manifest.get("load") or {}).get("closed_loop")
    missing = [name for name in RAW_FILES if not (run / name).is_file() and not (closed and name == QUERY_LOG)]
    if missing:
        raise BadInput(f"{run} lacks {', '.join(missing)}: restore it from where the run was made, or run again.")
    return manifest

# SPDX-License-Identifier: Apache-2.0
"""Which sweep is shown: the newest, or what the environment names; the committed one only for want of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from forktail import rundir
from forktail.analysis.sweep.newest import newest_sweep
from forktail.errors import BadInput


def _sweep(directory: Path, started_at: str | None) -> Path:
    directory.mkdir(parents=True)
    document: dict[str, object] = {
        "schema": rundir.SWEEP_SCHEMA,
        "name": directory.name,
        "started_at": started_at,
        "cells": [],
        "runs": [],
    }
    (directory / rundir.SWEEP).write_text(json.dumps(document))
    return directory


@pytest.fixture(autouse=True)
def _nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORKTAIL_RESULTS", raising=False)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    results = tmp_path / "results"
    _sweep(results / "a", "2026-01-03T00:00:00+00:00")
    _sweep(results / "b", "2026-01-02T00:00:00+00:00")
    _sweep(results / "never-begun", None)
    _sweep(results / "reference", "2026-01-04T00:00:00+00:00")
    (results / "under-way").mkdir()
    return results


def test_the_newest_is_the_one_that_began_last(results: Path, tmp_path: Path) -> None:
    (tmp_path / "notebooks").mkdir()
    assert newest_sweep(tmp_path / "notebooks")[0] == results / "a"
    _sweep(results / "c", "2026-01-03T01:30:00+01:00")
    assert newest_sweep(tmp_path)[1].document["name"] == "c"


def test_the_committed_sweep_is_shown_for_want_of_others(tmp_path: Path) -> None:
    reference = _sweep(tmp_path / "results" / "reference", "2099-01-01T00:00:00+00:00")
    assert newest_sweep(tmp_path)[0] == reference
    _sweep(tmp_path / "results" / "mine", None)
    assert newest_sweep(tmp_path)[0].name == "mine"


def test_the_environment_names_a_directory_of_sweeps_or_a_sweep(
    results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORKTAIL_RESULTS", str(results / "b"))
    assert newest_sweep(tmp_path / "elsewhere")[0] == results / "b"
    (tmp_path / "notebooks").mkdir()
    monkeypatch.setenv("FORKTAIL_RESULTS", "results/b")
    assert newest_sweep(tmp_path / "notebooks")[0] == results / "b"
    monkeypatch.setenv("FORKTAIL_RESULTS", str(results))
    assert newest_sweep(tmp_path / "elsewhere")[0] == results / "a"


def test_where_nothing_is_the_mend_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results").mkdir()
    with pytest.raises(BadInput, match="make sweep"):
        newest_sweep(tmp_path)
    monkeypatch.setenv("FORKTAIL_RESULTS", str(tmp_path / "gone"))
    with pytest.raises(BadInput, match=r"FORKTAIL_RESULTS is .*gone"):
        newest_sweep(tmp_path)

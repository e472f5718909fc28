# SPDX-License-Identifier: Apache-2.0
"""Baselines: only clean sweeps, none replaced, and the newest one of the same testbed and configuration is found."""

from datetime import timedelta
from pathlib import Path

import pytest
from tests.compare.history import BEGAN, TYPICAL, edit, sweep

from forktail import rundir
from forktail.analysis.baseline import newest, promote
from forktail.analysis.compare import Verdict, compare, read_thresholds
from forktail.errors import BadInput, GateFailed

PLAN = "[sweep]\nrepeat = 3\nnoise_floor = false"


def _night(directory: Path, day: int, plan: str = PLAN) -> Path:
    return sweep(directory / f"night{day}", lambda run: TYPICAL, workload=plan, began=BEGAN + timedelta(days=day))


def _set_build(night: Path, build: str) -> None:
    for path in night.rglob(rundir.ENVIRONMENT):
        edit(path, lambda document: document["kernel"].update(version=f"{build} SMP"))


def test_the_newest_of_the_same_testbed_and_configuration(tmp_path: Path) -> None:
    store = tmp_path / "store"
    tonight = _night(tmp_path, 9)
    assert newest(store, "lab", tonight) is None
    second, first = (promote(store, "lab", _night(tmp_path, day)) for day in (2, 1))
    promote(store, "elsewhere", _night(tmp_path, 3))
    promote(store, "lab", _night(tmp_path, 4, PLAN.replace("3", "4")))
    assert newest(store, "lab", tonight) == second != first
    assert len([*store.glob("lab/*")]) == 2


def test_a_kernel_that_was_built_anew_is_compared_with_the_one_before(tmp_path: Path) -> None:
    store = tmp_path / "store"
    before, after = _night(tmp_path, 1), _night(tmp_path, 2)
    _set_build(before, "#aaa")
    _set_build(after, "#bbb")
    kept = promote(store, "lab", before)
    assert newest(store, "lab", after) == kept
    assert kept.kernels == {"default": "6.1.1-forktail-default #aaa"}
    assert promote(store, "lab", after).directory.parent != kept.directory.parent


def test_a_baseline_is_all_that_a_comparison_reads(tmp_path: Path) -> None:
    kept = promote(tmp_path / "store", "lab", _night(tmp_path, 1))
    thresholds = tmp_path / "few.toml"
    thresholds.write_text("[runs]\nfewest = 3")
    worse = sweep(tmp_path / "worse", lambda run: {"fork_us": 24_000.0, "out_of_service_us": 24_000.0}, workload=PLAN)
    assert compare(kept.directory, worse, read_thresholds(thresholds)).verdict == Verdict.REGRESS


def test_only_a_clean_night_is_kept_and_none_is_replaced(tmp_path: Path) -> None:
    store, night = tmp_path / "store", _night(tmp_path, 1)
    promote(store, "lab", night)
    with pytest.raises(BadInput, match="never replaced"):
        promote(store, "lab", night)
    spoilt = _night(tmp_path, 2)
    edit(next(spoilt.rglob(rundir.SUMMARY)), lambda document: document.update(valid=False, reasons=["It was late."]))
    with pytest.raises(GateFailed, match=r"is not clean.*It was late"):
        promote(store, "lab", spoilt)
    mixed = _night(tmp_path, 3)
    _set_build(mixed, "#aaa")
    edit(next(mixed.rglob(rundir.ENVIRONMENT)), lambda document: document["kernel"].update(version="#bbb SMP"))
    with pytest.raises(GateFailed, match="two builds of default"):
        promote(store, "lab", mixed)
    with pytest.raises(BadInput, match="no name for a testbed"):
        promote(store, "../lab", night)
    assert len([*store.rglob("baseline.json")]) == 1

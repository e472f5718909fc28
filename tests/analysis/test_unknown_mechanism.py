# SPDX-License-Identifier: Apache-2.0
"""A kernel whose fork nobody knows is labelled so wherever a run of it is shown, and never stands for the default."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.analysis.synthetic import RunDirectory, async_fork
from tests.compare.history import edit, sweep

from forktail import rundir
from forktail.analysis import analyse
from forktail.analysis.compare import compare, read_thresholds
from forktail.analysis.compare.verdict import Verdict
from forktail.analysis.sweep import analyse_sweep
from forktail.analysis.sweep.label import flavour, fork_label
from forktail.analysis.sweep.table import print_sweep
from forktail.analysis.table import print_summary
from forktail.sweep.plan import LOCAL, plan_sweep
from forktail.sweep.sweep import open_sweep

FOREIGN = "6.8.0-my-async-fork"


def _on_foreign_kernel(recorded: str) -> RunDirectory:
    run = RunDirectory.whole()
    run.manifest["kernel"] = {"flavour": recorded, "release": FOREIGN}
    run.manifest["mechanism"] = {"name": recorded, "knob": None, "wanted": None, "read_back": None}
    if recorded == "unknown":
        run.manifest["warnings"].append(f"The fork mechanism of Linux {FOREIGN} is unknown: ...")
    return run


@pytest.mark.parametrize("recorded", ["unknown", "default"])
def test_a_run_on_a_foreign_kernel_is_of_an_unknown_mechanism(
    tmp_path: Path, recorded: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted: runs of older versions called such a kernel default."""
    summary = analyse(_on_foreign_kernel(recorded).write(tmp_path / "run"))
    assert summary.valid, summary.reasons
    assert summary.document["kernel"]["flavour"] == "unknown"
    assert summary.document["mechanism"]["name"] == "unknown"
    assert summary.document["mechanism"]["text"] == "unknown fork mechanism"
    assert "fork mechanism is unknown" in summary.document["answer"]
    (warning,) = [warning for warning in summary.warnings if "mechanism" in warning]
    assert f"Linux {FOREIGN} is unknown" in warning
    print_summary(summary)
    for shown in (capsys.readouterr().out, (tmp_path / "run" / rundir.REPORT).read_text()):
        assert "unknown fork mechanism" in shown
        assert "default fork, Linux" not in shown


def test_our_kernels_and_stock_ones_keep_their_names(tmp_path: Path) -> None:
    for name, run in (("default", RunDirectory.whole()), ("async-fork", async_fork())):
        summary = analyse(run.write(tmp_path / name), write=False)
        assert summary.document["kernel"]["flavour"] == summary.document["mechanism"]["name"] == name
        assert "unknown" not in summary.document["answer"]
        assert not [warning for warning in summary.warnings if "mechanism" in warning]


def test_a_sweep_of_a_foreign_kernel_does_not_call_it_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "one.toml"
    path.write_text("[sweep]\nrepeat = 1\nnoise_floor = false")
    open_sweep(plan_sweep(path, [], [LOCAL]), tmp_path / "sweep")
    _on_foreign_kernel("default").write(tmp_path / "sweep" / rundir.RUNS / "local-r1")
    result = analyse_sweep(tmp_path / "sweep")
    assert result.cells[0]["flavours"] == ["unknown"]
    assert flavour(result.cells[0]) == "unknown"
    assert fork_label(result.cells[0]) == "local (unknown fork mechanism)"
    print_sweep(result)
    assert "unknown fork mechanism" in " ".join(capsys.readouterr().out.split())
    assert "local (unknown fork mechanism)" in (tmp_path / "sweep" / rundir.REPORT).read_text()


@pytest.mark.parametrize("recorded", ["unknown", "default"])
def test_an_unknown_kernel_is_not_compared_with_the_default_one(tmp_path: Path, recorded: str) -> None:
    base, new = (sweep(tmp_path / name, lambda _: {}, kernels=("local",)) for name in ("base", "new"))
    thresholds = read_thresholds(None)
    assert compare(base, new, thresholds, None).verdict == Verdict.PASS
    for path in sorted((new / rundir.RUNS).glob(f"*/{rundir.SUMMARY}")):
        edit(path, lambda document: document["kernel"].update(flavour=recorded, release=FOREIGN))
    result = compare(base, new, thresholds, None)
    assert result.verdict == Verdict.INFRASTRUCTURE
    assert "unknown" in json.dumps(result.document["cells"])

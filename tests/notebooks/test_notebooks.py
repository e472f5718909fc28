# SPDX-License-Identifier: Apache-2.0
"""The notebooks, executed beside the committed sweep and a newer one: what they show, and that both forms agree."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jupytext
import pytest

from forktail import rundir

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
REFERENCE = ROOT / "results" / "reference"


def _cells(notebook: Any) -> list[tuple[str, str]]:
    return [(cell["cell_type"], cell["source"]) for cell in notebook["cells"]]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_its_source_without_outputs(path: Path) -> None:
    notebook = jupytext.read(path)
    assert _cells(notebook) == _cells(jupytext.read(path.with_suffix(".py"))), "make notebooks"
    assert not [cell for cell in notebook["cells"] if cell.get("outputs") or cell.get("execution_count")]


def test_every_source_has_its_notebook() -> None:
    assert [path.stem for path in sorted((ROOT / "notebooks").glob("*.py"))] == [path.stem for path in NOTEBOOKS]


@pytest.fixture(scope="module")
def executed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each notebook put out, as text, in a checkout where a sweep was made after the committed one."""
    checkout = tmp_path_factory.mktemp("checkout")
    (checkout / "notebooks").mkdir()
    for path in NOTEBOOKS:
        shutil.copy(path, checkout / "notebooks")
    shutil.copytree(REFERENCE, checkout / "results" / "reference")
    mine = checkout / "results" / "20991231T235959-mine-sweep"
    shutil.copytree(REFERENCE, mine)
    plan = json.loads((mine / rundir.PLAN).read_text())
    (mine / rundir.PLAN).write_text(json.dumps(plan | {"name": "mine"}))
    environment = {
        name: value for name, value in os.environ.items() if name not in ("FORKTAIL_RESULTS", "PYTEST_ADDOPTS")
    }
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbmake", "--overwrite", "--nbmake-timeout=240"]
    done = subprocess.run(
        [sys.executable, *command, "notebooks"], cwd=checkout, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    put_out = {}
    for path in (checkout / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        put_out[path.stem] = json.dumps([cell["outputs"] for cell in cells if cell["cell_type"] == "code"])
    return put_out


@pytest.mark.parametrize(
    ("notebook", "figures"), [("01-quickstart", 3), ("02-tail-latency", 4), ("03-fork-and-interruptions", 3)]
)
def test_a_notebook_draws_the_newest_sweep_and_marks_emulation(
    executed: dict[str, str], notebook: str, figures: int
) -> None:
    shown = executed[notebook]
    assert shown.count('"image/png"') == figures
    assert "**mine**" in shown
    assert "20991231T235959-mine-sweep" in shown
    emulated = json.loads((REFERENCE / rundir.SWEEP).read_text())["emulated"]
    assert ("**EMULATED**" in shown) == emulated
    assert ("(EMULATED)" in shown) == emulated

# SPDX-License-Identifier: Apache-2.0
"""What the workflows must never lose: pinned actions, no stranger on bare metal, hosts put back, red without data."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

WORKFLOWS = sorted((Path(__file__).parents[2] / ".github" / "workflows").glob("*.yml"))


def _read(name: str) -> dict[Any, Any]:
    (path,) = [path for path in WORKFLOWS if path.stem == name]
    document: dict[Any, Any] = yaml.safe_load(path.read_text())
    return document


def _steps(workflow: dict[Any, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_every_action_is_pinned_to_a_commit_and_says_of_which_version(path: Path) -> None:
    used = re.findall(r"uses: *(.*)", path.read_text())
    assert used
    assert not [action for action in used if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_only_read_and_an_upload_of_nothing_fails(path: Path) -> None:
    workflow = _read(path.stem)
    assert workflow["permissions"] == {"contents": "read"}
    uploads = [step for step in _steps(workflow) if "upload-artifact" in step.get("uses", "")]
    assert uploads
    assert all(step["with"]["if-no-files-found"] == "error" and step["if"] == "always()" for step in uploads)


def test_bare_metal_runs_what_was_merged_alone_and_one_sweep_at_a_time() -> None:
    nightly = _read("nightly")
    # YAML reads the key `on` as true.
    assert set(nightly[True]) == {"schedule", "workflow_dispatch"}
    assert nightly["concurrency"]["cancel-in-progress"] is False
    assert "testbed" in nightly["concurrency"]["group"]
    assert all("self-hosted" in job["runs-on"] for job in nightly["jobs"].values())
    assert all("self-hosted" not in job["runs-on"] for job in _read("ci")["jobs"].values())


def test_hosts_are_put_back_and_results_are_kept_however_the_sweep_ends() -> None:
    after = [step.get("name", "") for step in _steps(_read("nightly")) if step.get("if") == "always()"]
    assert after == ["Restore the hosts", "Collect", "Keep the results"]


def test_continuous_integration_runs_what_a_machine_of_ones_own_runs() -> None:
    assert ".ci/run" in [step.get("run") for step in _steps(_read("ci"))]

# SPDX-License-Identifier: Apache-2.0
"""The requirements of a run are a part of all requirements, in the same versions."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _pins(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", (ROOT / name).read_text(), re.MULTILINE))


def test_a_run_is_measured_with_the_versions_that_are_tested() -> None:
    some, every = _pins("requirements-run.lock"), _pins("requirements.lock")
    assert {"numpy", "pandas", "pydantic", "scikit-build-core"} <= set(some)
    assert some == {name: every[name] for name in some}

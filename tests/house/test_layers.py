# SPDX-License-Identifier: Apache-2.0
"""The house's rules that a reader relies on: what measures stays light, and data flows one way."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "harness" / "forktail"
HEAVY = ("numpy", "pandas", "pyarrow", "matplotlib", "jinja2", "scipy")


def test_the_measuring_side_imports_nothing_heavy() -> None:
    """A guest under emulation, or a production server, must not pay for pandas."""
    program = (
        "import sys, forktail.cli, forktail.measure.run, forktail.measure.doctor\n"
        f"print(*(name for name in {HEAVY!r} if name in sys.modules))"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert output.split() == []


def _imports(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


@pytest.mark.parametrize("path", sorted((PACKAGE / "analysis").rglob("*.py")), ids=lambda path: path.stem)
def test_analysis_is_a_function_of_the_run_directory_alone(path: Path) -> None:
    assert not {name for name in _imports(path) if name.startswith("forktail.measure")}


@pytest.mark.parametrize("path", sorted((PACKAGE / "measure").rglob("*.py")), ids=lambda path: path.stem)
def test_measuring_does_not_look_ahead_to_analysis(path: Path) -> None:
    assert not {name for name in _imports(path) if name.startswith("forktail.analysis")}

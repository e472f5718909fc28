# SPDX-License-Identifier: Apache-2.0
"""Mutants of the analysis: whether a test fails for each small change of its functions.

    python tests/mutants/mutants.py [--tests PATH]... [MODULE]...

Copies package and tests to `build/mutants`, has mutmut change one expression at a time, and runs those analysis tests
that reach it. Prints the score of each module, and every mutant that survived. MODULE is as in `validity` or
`compare.bootstrap`; without one, all of `forktail.analysis` is mutated, which takes hours.

With --tests, only these tests are run, which is quicker and can only lower the score.

mutmut imports the package from the copy, which the editable install would hide: its finder is removed here. The
package lies in `src/` there, as mutmut names modules by that.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORK = ROOT / "build" / "mutants"
PACKAGE = Path("src") / "forktail"
ANALYSIS = PACKAGE / "analysis"
COPIED = ("tests", "workloads", "kernel-configs")
TESTS = ("tests/analysis", "tests/compare", "tests/sweep")
KILLED = ("killed", "timeout")
"""A mutant that never ends is found, too."""


def prepare(modules: list[str], tests: list[str]) -> None:
    """Make the copy that mutmut works in; what it knows of the last run is thrown away."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "harness" / "forktail", WORK / PACKAGE, ignore=ignored)
    for name in COPIED:
        shutil.copytree(ROOT / name, WORK / name, ignore=ignored)
    mutated = [f"{ANALYSIS / module.replace('.', '/')}.py" for module in modules] or [f"{ANALYSIS}/*"]
    settings = {
        "source_paths": [str(PACKAGE)],
        "only_mutate": mutated,
        "also_copy": list(COPIED),
        "pytest_add_cli_args_test_selection": tests or list(TESTS),
    }
    lines = ["", "[tool.mutmut]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    (WORK / "pyproject.toml").write_text(text + "\n".join(lines) + "\n", encoding="utf-8")


def use_copy() -> None:
    """Let neither the editable install nor this directory be found by what is imported from now on."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if "skbc" not in type(finder).__module__]
    unwanted = {ROOT / "harness", Path(__file__).parent}
    sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() not in unwanted]
    os.chdir(WORK)


def mutate(workers: int) -> None:
    """Run mutmut over the copy; it ends the process where it fails."""
    from mutmut.__main__ import cli

    try:
        cli(["run", "--max-children", str(workers)], standalone_mode=False)
    except SystemExit as end:
        if end.code:
            raise


def results() -> dict[str, dict[str, str]]:
    """By module, what became of each mutant by its name."""
    from mutmut.stats import status_by_exit_code

    found = {}
    for path in sorted((WORK / "mutants" / ANALYSIS).rglob("*.meta")):
        codes = json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"]
        if codes:
            module = str(path.relative_to(WORK / "mutants" / ANALYSIS)).removesuffix(".py.meta").replace("/", ".")
            found[module] = {name: status_by_exit_code[code] for name, code in codes.items()}
    return found


def main(arguments: list[str]) -> int:
    """The program; its exit code is 1 where no mutant was made."""
    parser = argparse.ArgumentParser(prog="mutants.py", description="Mutation testing of the analysis.")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="as in validity or compare.bootstrap [all]")
    parser.add_argument("--tests", action="append", default=[], metavar="PATH", help="run these tests only")
    given = parser.parse_args(arguments)
    prepare(given.modules, given.tests)
    use_copy()
    mutate(os.cpu_count() or 1)
    found = results()
    killed = total = 0
    for module, mutants in found.items():
        for name, status in mutants.items():
            if status not in KILLED:
                print(f"{status}: {name}")
        own = sum(status in KILLED for status in mutants.values())
        print(f"{module}: {own} of {len(mutants)} killed, {own / len(mutants):.1%}")
        killed, total = killed + own, total + len(mutants)
    if total:
        print(f"all: {killed} of {total} killed, {killed / total:.1%}")
    return 0 if total else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

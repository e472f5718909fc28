# SPDX-License-Identifier: Apache-2.0
"""`forktail compare`: whether a sweep is worse than another, as a verdict and as an exit code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from forktail.cli.console import Json, print_json, told_clearly
from forktail.errors import BadInput

EPILOG = (
    "Exit codes: 0 pass, 1 regress, 2 bad input, 3 infrastructure failure (something to compare is missing, not valid, "
    "or of another workload or host), 4 inconclusive (too few runs for their noise), 130 interrupted.  "
    "Example: forktail compare results/baseline results/20260131T120000-quick-sweep --markdown"
)


def _print_thresholds(wanted: bool) -> None:
    if wanted:
        from forktail.analysis.compare import DEFAULT_THRESHOLDS

        print(DEFAULT_THRESHOLDS.read_text(encoding="utf-8"), end="")
        raise typer.Exit


def compare(
    base: Annotated[Path, typer.Argument(help="The sweep to compare with, a directory that `forktail sweep` wrote.")],
    new: Annotated[Path, typer.Argument(help="The sweep to judge.")],
    thresholds: Annotated[
        Path | None,
        typer.Option("--thresholds", metavar="TOML", help="What differs from the shipped thresholds."),
    ] = None,
    base_kernel: Annotated[
        str | None, typer.Option("--base-kernel", metavar="KERNEL", help="Compare only this kernel of BASE ...")
    ] = None,
    new_kernel: Annotated[
        str | None,
        typer.Option("--new-kernel", metavar="KERNEL", help="... with this one of NEW, which may be BASE."),
    ] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the result as Markdown.")] = False,
    as_json: Json = False,
    _shown: Annotated[
        bool,
        typer.Option(
            "--print-thresholds", is_eager=True, callback=_print_thresholds, help="Print the shipped thresholds."
        ),
    ] = False,
) -> None:
    """Judge whether NEW is worse than BASE: per metric the ratio, its interval over runs, and a verdict."""
    with told_clearly():
        if as_json and as_markdown:
            raise BadInput("--json and --markdown are two forms of one result: give one of them.")
        if (base_kernel is None) != (new_kernel is None):
            raise BadInput("--base-kernel and --new-kernel go together: give both, or none to compare all kernels.")
        from forktail.analysis import compare as comparing
        from forktail.analysis.compare.table import markdown, print_comparison

        kernels = (base_kernel, new_kernel) if base_kernel is not None and new_kernel is not None else None
        result = comparing.compare(base, new, comparing.read_thresholds(thresholds), kernels)
        if as_json:
            print_json(result.document)
        elif as_markdown:
            print(markdown(result), end="")
        else:
            print_comparison(result)
        if result.verdict.exit_code:
            raise typer.Exit(result.verdict.exit_code)

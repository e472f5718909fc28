# SPDX-License-Identifier: Apache-2.0
"""`forktail doctor`: the diagnosis of this host, for a reader or as JSON."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table

from forktail.cli.console import Json, print_json, told_clearly
from forktail.measure.doctor import Diagnosis, diagnose


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    console = Console(soft_wrap=True, highlight=False)
    kernel = diagnosis.kernel
    console.print(f"Kernel {kernel['release']} ({kernel['flavour']} fork), BTF {'yes' if kernel['btf'] else 'no'}")
    for name, path in diagnosis.programs.items():
        console.print(f"  {name:<17} {path}", markup=False)
    if diagnosis.measurements:
        table = Table("measurement", "probe used", "note", "better ones refused", title="What can be measured here")
        for measurement in diagnosis.measurements:
            refused = "\n".join(f"{rejection.probe}: {rejection.why}" for rejection in measurement.rejected)
            table.add_row(measurement.name, measurement.probe or "none", measurement.label, refused)
        Console(highlight=False, width=None if console.is_terminal else 160).print(table)
    sections: list[tuple[str, list[str], str]] = [
        ("Missing", diagnosis.missing, "nothing: `forktail run` can run here"),
        ("Differs from a comparable host", diagnosis.deviations, "nothing"),
    ]
    for title, sentences, otherwise in sections:
        console.print(f"{title}: {otherwise if not sentences else ''}")
        for sentence in sentences:
            console.print(f"  - {sentence}", markup=False)


def doctor(as_json: Json = False) -> None:
    """Say what this host can measure, by which probe, and what is missing (exit code 3 if anything is)."""
    with told_clearly():
        diagnosis = diagnose()
        if as_json:
            print_json(diagnosis.as_json())
        else:
            _print_diagnosis(diagnosis)
        if diagnosis.missing:
            raise typer.Exit(3)
